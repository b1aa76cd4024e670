//! Which server this is, and whether it can be worked with.

use sqlx::MySqlConnection;

use crate::error::{Error, ErrorKind, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Mariadb,
    Mysql,
}

impl Server {
    /// Compares bytes, and 'a' is not 'a ': keys and ids need it.
    pub(super) fn nopad(self) -> &'static str {
        match self {
            Self::Mariadb => "utf8mb4_nopad_bin",
            Self::Mysql => "utf8mb4_0900_bin",
        }
    }
}

/// Which servers are let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Accepts {
    /// Those that the store was made for.
    #[default]
    Tested,
    /// TiDB too, to find out what is missing there.
    Tidb,
}

/// Asks the server, and refuses one that this store was not made for.
pub(super) async fn of(connection: &mut MySqlConnection, accepts: Accepts) -> Result<Server> {
    let version: String =
        sqlx::query_scalar("select version()").fetch_one(connection).await.map_err(Error::from)?;
    recognise(&version, accepts)
}

/// What the store needs and TiDB does not have, as far as its documents and its issues say.
const TIDB: &str = "TiDB is not supported: its `for update skip locked` locks no row, so that two \
    relays would claim the same event; its auto_increment is cached by each server, so that `seq` \
    would not follow the order of inserts; and it has neither json_table nor stored procedures, \
    which settles and outbox_emit are written with. Use MySQL or MariaDB";

/// MariaDB 10.6 and MySQL 8.0.17 are the first with all of: SKIP LOCKED, JSON_TABLE, checks that
/// are enforced, defaults that are expressions, and a collation that compares bytes without
/// padding.
fn recognise(version: &str, accepts: Accepts) -> Result<Server> {
    let (server, name, least) = match version {
        _ if version.contains("TiDB") && accepts == Accepts::Tidb => return Ok(Server::Mysql),
        _ if version.contains("TiDB") => {
            let message = format!("{TIDB} (got {version})");
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        _ if version.contains("MariaDB") => (Server::Mariadb, "MariaDB", [10, 6, 0]),
        _ => (Server::Mysql, "MySQL", [8, 0, 17]),
    };
    if numbers(version) >= least {
        return Ok(server);
    }
    let [major, minor, patch] = least;
    let message = format!("{name} {major}.{minor}.{patch} or newer is needed, this is {version}");
    Err(Error::new(ErrorKind::Configuration, message))
}

/// The first three numbers of a version; what is missing is 0.
fn numbers(version: &str) -> [u32; 3] {
    let mut parts = version.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse());
    [(); 3].map(|()| parts.next().and_then(std::result::Result::ok).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_told_apart_and_old_ones_refused() {
        for mariadb in ["10.6.0-MariaDB", "10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB-log"] {
            assert_eq!(recognise(mariadb, Accepts::Tested).unwrap(), Server::Mariadb, "{mariadb}");
        }
        for mysql in ["8.0.17", "8.0.36-0ubuntu0.22.04.1", "8.4.0", "9.1.0-commercial"] {
            assert_eq!(recognise(mysql, Accepts::Tested).unwrap(), Server::Mysql, "{mysql}");
        }
        for old in ["10.5.28-MariaDB", "5.7.44-log", "8.0.16", "8.0.11-TiDB-v7.5.0", "", "x"] {
            let error = recognise(old, Accepts::Tested).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Configuration);
            assert!(error.to_string().contains(old), "{error}");
        }
    }

    #[test]
    fn tidb_is_refused_with_what_it_lacks_unless_it_is_to_be_tried() {
        let version = "8.0.11-TiDB-v8.5.6";

        let refused = recognise(version, Accepts::Tested).unwrap_err().to_string();

        for missing in ["skip locked", "auto_increment", "json_table", "stored procedures"] {
            assert!(refused.contains(missing), "{refused}");
        }
        assert_eq!(recognise(version, Accepts::Tidb).unwrap(), Server::Mysql);
    }
}
