//! The programs of MariaDB and of MySQL.

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
pub(crate) struct Programs {
    pub(super) server: PathBuf,
    pub(super) client: PathBuf,
    pub(super) product: Product,
    /// Where the server finds what it comes with, if that is not where it was built for.
    pub(super) base: Option<PathBuf>,
}

/// Who made the server; the two part ways before it first starts.
#[derive(Debug)]
pub(super) enum Product {
    MariaDb {
        /// Makes the system's tables.
        install: PathBuf,
    },
    /// The server makes its tables itself.
    MySql,
}

impl Programs {
    /// The MariaDB of this machine: all of it, or nothing.
    pub(super) fn installed() -> Option<Self> {
        let install = anywhere("mariadb-install-db")?;
        let (server, client) = (anywhere("mariadbd")?, anywhere("mariadb")?);
        Some(Self { server, client, product: Product::MariaDb { install }, base: None })
    }

    /// A MariaDB below a directory that stands for `/usr`.
    pub(crate) fn mariadb(usr: &Path) -> Self {
        Self {
            server: usr.join("sbin/mariadbd"),
            client: usr.join("bin/mariadb"),
            product: Product::MariaDb { install: usr.join("bin/mariadb-install-db") },
            base: Some(usr.to_owned()),
        }
    }

    /// A MySQL below a directory that stands for `/usr`.
    pub(crate) fn mysql(usr: &Path) -> Self {
        Self {
            server: usr.join("sbin/mysqld"),
            client: usr.join("bin/mysql"),
            product: Product::MySql,
            base: Some(usr.to_owned()),
        }
    }

    /// The release series, such as `10.11`: within one, files can be read back and forth.
    pub(super) fn series(&self) -> Result<String> {
        let version = output(Command::new(&self.server).args(["--no-defaults", "--version"]))?;
        Ok(series_of(&version).ok_or_else(|| format!("no version in {version:?}"))?)
    }
}

fn anywhere(program: &str) -> Option<PathBuf> {
    let off_path = OFF_PATH.iter().map(|dir| Path::new(dir).join(program));
    find(program).or_else(|| off_path.into_iter().find(|file| file.is_file()))
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
