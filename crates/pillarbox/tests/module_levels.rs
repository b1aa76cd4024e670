//! Checks the module levels of ARCHITECTURE.md: which module may import which.

#![allow(clippy::unwrap_used, reason = "a test helper may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The level of each module. A module imports modules of lower levels only.
const LEVELS: &[(&str, u8)] = &[
    ("sync", 0),
    ("error", 0),
    ("clock", 0),
    ("id", 0),
    ("status", 0),
    ("table", 0),
    ("verdict", 0),
    ("event", 0),
    ("envelope", 0),
    ("context", 0),
    ("crash_point", 0),
    ("listener", 1),
    ("telemetry", 1),
    ("pooled", 1),
    ("retry", 1),
    ("store", 1),
    ("scheduler", 1),
    ("tx", 1),
    ("wake", 1),
    ("local_queue", 2),
    ("outbox", 3),
    ("inbox", 3),
    ("layer", 3),
    ("admin", 4),
    ("relay", 5),
    ("connect", 6),
    ("fuzzing", 7),
];

/// Backends depend on a database: they import levels 0 and 1, and only `connect` imports them.
const BACKENDS: &[&str] =
    &["store/memory", "store/mysql", "store/postgres", "store/sqlite", "tx/sqlx"];

#[test]
fn modules_import_lower_levels_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut forbidden = Vec::new();
    for file in rust_files(&src) {
        let path = file.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).unwrap();
        forbidden.extend(violations(&path, &text));
    }
    assert!(forbidden.is_empty(), "{}", forbidden.join("\n"));
}

#[test]
fn every_module_has_a_level() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let missing: Vec<_> = rust_files(&src)
        .iter()
        .map(|file| file.strip_prefix(&src).unwrap().to_string_lossy().into_owned())
        .filter(|path| path != "lib.rs" && level_of(path).is_none())
        .collect();

    assert!(missing.is_empty(), "add these modules to LEVELS in this test: {missing:?}");
}

#[test]
fn forbidden_imports_are_found() {
    let forbidden = [
        ("retry.rs", "use crate::relay::Relay;"),
        ("retry.rs", "use crate::{\n    clock::Clock,\n    relay::{Relay, Settings},\n};"),
        ("retry.rs", "fn f() { crate::outbox::Outbox::new(); }"),
        ("store.rs", "pub use crate::tx::Tx;"),
        ("store/postgres/read.rs", "use crate::inbox::Inbox;"),
        ("outbox.rs", "use crate::store::postgres::PostgresStore;"),
        ("relay/shard_loop.rs", "use crate::{store::{memory::MemoryStore, Store}};"),
    ];
    for (path, text) in forbidden {
        assert_eq!(violations(path, text).len(), 1, "{path}: {text}");
    }

    let allowed = [
        ("retry.rs", "use crate::{clock::Clock, verdict::{Failure, Verdict}};"),
        ("store/postgres/read.rs", "use crate::store::{Pending, Read};\nuse crate::tx::Accept;"),
        ("connect.rs", "use crate::store::postgres::PostgresStore;"),
        (
            "relay/shard_loop.rs",
            "use crate::relay::fetch::Fetch;\n// use crate::connect in a comment",
        ),
    ];
    for (path, text) in allowed {
        assert_eq!(violations(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

/// Returns the imports of this file that are not allowed.
fn violations(path: &str, text: &str) -> Vec<String> {
    let Some(level) = level_of(path) else { return Vec::new() };
    let backend = backend_of(path);
    let forbidden: BTreeSet<String> = crate_paths(&shipped(text))
        .iter()
        .filter(|target| !is_allowed(path, level, backend, target))
        .map(|target| backend_of(target).unwrap_or(module_of(target)).to_owned())
        .collect();
    forbidden.iter().map(|target| format!("{path}: must not import `{target}`")).collect()
}

fn is_allowed(path: &str, level: u8, backend: Option<&str>, target: &str) -> bool {
    let Some(other) = level_of(target) else { return true };
    if let Some(theirs) = backend_of(target) {
        return backend == Some(theirs) || module_of(path) == "connect";
    }
    let same_module = module_of(path) == module_of(target);
    // Modules of level 0 may import those listed before them; other levels do not import each other.
    let earlier_base = level == 0 && other == 0 && index_of(target) < index_of(path);
    same_module || earlier_base || if backend.is_some() { other <= 1 } else { other < level }
}

/// Returns `use crate::{a::X, b::{Y, Z}}` as `a/X`, `b/Y`, `b/Z`, and paths in expressions.
fn crate_paths(text: &str) -> Vec<String> {
    let starts = text.match_indices("crate::").map(|(at, found)| at + found.len());
    let mut paths = Vec::new();
    for start in starts {
        expand("", &text[start..], &mut paths);
    }
    paths
}

/// Parses one path or group after `prefix` and returns the rest of the text.
fn expand<'t>(prefix: &str, text: &'t str, paths: &mut Vec<String>) -> &'t str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start_matches([' ', '\n', ',']);
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or_default();
            }
            rest = expand(prefix, rest, paths);
            rest = rest.trim_start();
            rest = rest.strip_prefix("as ").map_or(rest, |alias| {
                alias.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
            });
            if !rest.starts_with([',', '}', ' ', '\n']) {
                return rest;
            }
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    match text[end..].strip_prefix("::") {
        Some(rest) => expand(&format!("{path}/"), rest, paths),
        None => {
            paths.push(path);
            &text[end..]
        }
    }
}

/// Returns the code without comments and tests, which may import anything.
fn shipped(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

fn backend_of(path: &str) -> Option<&'static str> {
    let path = path.trim_end_matches(".rs");
    BACKENDS.iter().find(|it| path == **it || path.starts_with(&format!("{it}/"))).copied()
}

fn module_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or_default()
}

fn index_of(path: &str) -> Option<usize> {
    LEVELS.iter().position(|(name, _)| *name == module_of(path))
}

fn level_of(path: &str) -> Option<u8> {
    LEVELS.iter().find(|(name, _)| *name == module_of(path)).map(|(_, level)| *level)
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let nested =
        entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    let is_code = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "rs");
    nested.filter(|path| is_code(path) && !path.ends_with("tests.rs")).collect()
}
