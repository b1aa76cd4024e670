//! Starting programs, and saying which.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::Result;

/// The repository's root, where every command runs.
pub(crate) fn root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here)
}

/// A cargo command, split at spaces, as a person would start it from the root.
pub(crate) fn cargo(line: &str) -> Command {
    let mut command = Command::new("cargo");
    command.args(line.split_whitespace()).current_dir(root());
    // `cargo xtask` describes the xtask package to us in these. Build scripts that watch them (ring
    // does) would run again each time a build by hand and one from here take turns.
    let ours = env::vars_os().map(|(name, _)| name).filter(|name| {
        let name = name.to_string_lossy();
        name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
    });
    for name in ours {
        command.env_remove(name);
    }
    command
}

/// What to type to run this command by hand.
pub(crate) fn by_hand(command: &Command) -> String {
    let set = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
    let set = set.map(|(name, value)| {
        format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy()))
    });
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words = words.map(|word| quoted(&word.to_string_lossy()));
    set.chain(words).collect::<Vec<_>>().join(" ")
}

/// A word as a shell takes it for one.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a command to its end and returns what it wrote to stdout.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = by_hand(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`{line}` failed ({}): {}", output.status, said.trim()).into())
}

/// Where a program is, if it is on the path.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_by_hand_shows_what_was_set_and_quotes_it() {
        let mut command = cargo("doc --workspace");
        command.env("RUSTDOCFLAGS", "-D warnings").arg("it's");

        let line = by_hand(&command);

        assert_eq!(line, r"RUSTDOCFLAGS='-D warnings' cargo doc --workspace 'it'\''s'");
    }

    #[test]
    fn a_failed_command_tells_what_it_said() {
        let error = output(cargo("--no-such-option").env("CARGO_TERM_COLOR", "never")).unwrap_err();

        assert!(error.to_string().contains("cargo --no-such-option"), "{error}");
        assert!(error.to_string().contains("unexpected argument"), "{error}");
    }

    #[test]
    fn a_program_that_is_nowhere_is_not_found() {
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
