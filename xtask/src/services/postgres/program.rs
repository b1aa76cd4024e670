//! Finding the programs of PostgreSQL.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Result,
    command::{find, output},
};

/// The directory that holds the server's programs.
///
/// Links are followed, since a link to `initdb` alone does not make a directory of programs.
pub(super) fn dir() -> Option<PathBuf> {
    let on_path =
        find("pg_ctl").and_then(|file| Some(fs::canonicalize(file).ok()?.parent()?.into()));
    on_path.into_iter().chain(debian()).find(|dir: &PathBuf| {
        ["initdb", "pg_ctl", "postgres"].iter().all(|program| dir.join(program).is_file())
    })
}

/// Debian keeps each version's programs off the path; newest first.
fn debian() -> Vec<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |name: &OsStr| name.to_str()?.parse::<u32>().ok();
    let mut found: Vec<_> = versions
        .filter_map(|dir| Some((number(&dir.file_name())?, dir.path().join("bin"))))
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, dir)| dir).collect()
}

/// The major version of the programs in a directory.
pub(super) fn major(dir: &Path) -> Result<u32> {
    let version = output(Command::new(dir.join("postgres")).arg("--version"))?;
    Ok(major_of(&version).ok_or_else(|| format!("no version in {version:?}"))?)
}

/// The 17 of `postgres (PostgreSQL) 17.2 (Debian 17.2-1)`, and of `17beta1`.
fn major_of(version: &str) -> Option<u32> {
    let number =
        version.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major_of("postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)"), Some(15));
        assert_eq!(major_of("postgres (PostgreSQL) 19beta1"), Some(19));
        assert_eq!(major_of("postgres"), None);
    }
}
