//! Finding the programs of MariaDB.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    Result,
    command::{find, output},
};

/// Where distributions keep servers that are not on an ordinary user's path.
const OFF_PATH: [&str; 3] = ["/usr/sbin", "/usr/local/sbin", "/usr/libexec"];

/// What it takes to make a data directory, run a server on it, and talk to that server.
#[derive(Debug)]
pub(super) struct Programs {
    pub(super) server: PathBuf,
    pub(super) install: PathBuf,
    pub(super) client: PathBuf,
    pub(super) admin: PathBuf,
}

impl Programs {
    /// All of them, or nothing: a server that nobody can ask is of no use.
    pub(super) fn find() -> Option<Self> {
        Some(Self {
            server: anywhere("mariadbd")?,
            install: anywhere("mariadb-install-db")?,
            client: anywhere("mariadb")?,
            admin: anywhere("mariadb-admin")?,
        })
    }
}

fn anywhere(program: &str) -> Option<PathBuf> {
    let off_path = OFF_PATH.iter().map(|dir| Path::new(dir).join(program));
    find(program).or_else(|| off_path.into_iter().find(|file| file.is_file()))
}

/// The release series of a server, such as `10.11`: within one, files can be read back and forth.
pub(super) fn series(server: &Path) -> Result<String> {
    let version = output(Command::new(server).args(["--no-defaults", "--version"]))?;
    Ok(series_of(&version).ok_or_else(|| format!("no version in {version:?}"))?)
}

/// The 10.11 of `mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64`.
fn series_of(version: &str) -> Option<String> {
    let (_, version) = version.split_once(" Ver ")?;
    let mut numbers = version.trim_start().split(|c: char| !c.is_ascii_digit());
    let (major, minor) = (numbers.next()?, numbers.next()?);
    (!major.is_empty() && !minor.is_empty()).then(|| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_the_first_two_numbers() {
        let debian = "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64";
        let mysql = "/usr/sbin/mysqld  Ver 9.7.4-1 for Linux on x86_64 ((Debian))";

        assert_eq!(series_of(debian).as_deref(), Some("10.11"));
        assert_eq!(series_of(mysql).as_deref(), Some("9.7"));
        assert_eq!(series_of("mariadbd  Ver unknown"), None);
        assert_eq!(series_of("mariadbd"), None);
    }
}
