//! The map in ARCHITECTURE.md, enforced: which room may import which.

#![allow(clippy::unwrap_used, reason = "a test helper may")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms from the ground up. A room imports rooms on lower floors, none beside or above it.
const FLOORS: &[(&str, u8)] = &[
    ("sync", 0),
    ("error", 0),
    ("clock", 0),
    ("id", 0),
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

/// Rooms below know a product: they import floors 0 and 1, and only `connect` imports them.
const EDGES: &[&str] =
    &["store/memory", "store/mysql", "store/postgres", "store/sqlite", "tx/sqlx"];

#[test]
fn rooms_import_only_downstairs() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wrong = Vec::new();
    for file in rust_files(&src) {
        let path = file.strip_prefix(&src).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&file).unwrap();
        wrong.extend(violations(&path, &text));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_room_has_a_floor() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let homeless: Vec<_> = rust_files(&src)
        .iter()
        .map(|file| file.strip_prefix(&src).unwrap().to_string_lossy().into_owned())
        .filter(|path| path != "lib.rs" && floor_of(path).is_none())
        .collect();

    assert!(homeless.is_empty(), "give these a floor in this test: {homeless:?}");
}

#[test]
fn planted_mistakes_are_found() {
    let mistakes = [
        ("retry.rs", "use crate::relay::Relay;"),
        ("retry.rs", "use crate::{\n    clock::Clock,\n    relay::{Relay, Settings},\n};"),
        ("retry.rs", "fn f() { crate::outbox::Outbox::new(); }"),
        ("store.rs", "pub use crate::tx::Tx;"),
        ("store/postgres/read.rs", "use crate::inbox::Inbox;"),
        ("outbox.rs", "use crate::store::postgres::PostgresStore;"),
        ("relay/shard_loop.rs", "use crate::{store::{memory::MemoryStore, Store}};"),
    ];
    for (path, text) in mistakes {
        assert_eq!(violations(path, text).len(), 1, "{path}: {text}");
    }

    let sound = [
        ("retry.rs", "use crate::{clock::Clock, verdict::{Failure, Verdict}};"),
        ("store/postgres/read.rs", "use crate::store::{Pending, Read};\nuse crate::tx::Accept;"),
        ("connect.rs", "use crate::store::postgres::PostgresStore;"),
        (
            "relay/shard_loop.rs",
            "use crate::relay::fetch::Fetch;\n// use crate::connect is far above",
        ),
    ];
    for (path, text) in sound {
        assert_eq!(violations(path, text), Vec::<String>::new(), "{path}: {text}");
    }
}

/// Every path into `crate::` that the room of this file must not take.
fn violations(path: &str, text: &str) -> Vec<String> {
    let Some(floor) = floor_of(path) else { return Vec::new() };
    let edge = edge_of(path);
    let wrong: BTreeSet<String> = crate_paths(&shipped(text))
        .iter()
        .filter(|target| !is_allowed(path, floor, edge, target))
        .map(|target| edge_of(target).unwrap_or(room_of(target)).to_owned())
        .collect();
    wrong.iter().map(|target| format!("{path}: must not import `{target}`")).collect()
}

fn is_allowed(path: &str, floor: u8, edge: Option<&str>, target: &str) -> bool {
    let Some(other) = floor_of(target) else { return true };
    if let Some(theirs) = edge_of(target) {
        return edge == Some(theirs) || room_of(path) == "connect";
    }
    let own_room = room_of(path) == room_of(target);
    // Words build on each other in the order of the list; contracts do not know each other.
    let lower_word = floor == 0 && other == 0 && place_of(target) < place_of(path);
    own_room || lower_word || if edge.is_some() { other <= 1 } else { other < floor }
}

/// `use crate::{a::X, b::{Y, Z}}` as `a/X`, `b/Y`, `b/Z`; also paths inside expressions.
fn crate_paths(text: &str) -> Vec<String> {
    let starts = text.match_indices("crate::").map(|(at, found)| at + found.len());
    let mut paths = Vec::new();
    for start in starts {
        expand("", &text[start..], &mut paths);
    }
    paths
}

/// Reads one path or group after `prefix` and returns what is left of the text.
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

/// What ships: comments import nothing, and tests may stand on any floor.
fn shipped(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(code).collect::<Vec<_>>().join("\n")
}

fn edge_of(path: &str) -> Option<&'static str> {
    let path = path.trim_end_matches(".rs");
    EDGES.iter().find(|edge| path == **edge || path.starts_with(&format!("{edge}/"))).copied()
}

fn room_of(path: &str) -> &str {
    path.split(['/', '.']).next().unwrap_or_default()
}

fn place_of(path: &str) -> Option<usize> {
    FLOORS.iter().position(|(name, _)| *name == room_of(path))
}

fn floor_of(path: &str) -> Option<u8> {
    FLOORS.iter().find(|(name, _)| *name == room_of(path)).map(|(_, floor)| *floor)
}

fn rust_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let nested =
        entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] });
    let is_code = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "rs");
    nested.filter(|path| is_code(path) && !path.ends_with("tests.rs")).collect()
}
