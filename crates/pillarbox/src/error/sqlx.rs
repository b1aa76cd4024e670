//! Classifies the errors of databases.

use sqlx::error::DatabaseError;

use super::{Error, ErrorKind};

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        let (kind, message) = match &source {
            sqlx::Error::Database(answer) => classify(&**answer),
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
                (ErrorKind::Unavailable, "the database cannot be reached".to_owned())
            }
            // A connection that breaks during the TLS negotiation is reported like this.
            sqlx::Error::Protocol(message) if message.contains("SSLRequest") => {
                (ErrorKind::Unavailable, "the connection to the database broke".to_owned())
            }
            sqlx::Error::PoolClosed => {
                (ErrorKind::Unavailable, "the connection pool is closed".to_owned())
            }
            sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => {
                (ErrorKind::Configuration, "cannot connect to the database".to_owned())
            }
            sqlx::Error::ColumnDecode { index, .. } => {
                (ErrorKind::Corrupt, format!("column {index} cannot be read"))
            }
            _ => (ErrorKind::Database, "the database call failed".to_owned()),
        };
        Self::new(kind, message).caused_by(source)
    }
}

impl Error {
    /// An error while connecting. The message includes the database's own, which has no password.
    pub(crate) fn connecting(source: sqlx::Error) -> Self {
        let error = Self::from(source);
        let cause = error.source_text();
        let kind = match error.kind() {
            ErrorKind::Unavailable => ErrorKind::Unavailable,
            _ => ErrorKind::Configuration,
        };
        Self { kind, message: format!("cannot connect to the database: {cause}"), ..error }
    }

    /// An error in a URL. The parser's message may quote an unknown parameter, which can be a part
    /// of a password that has an unescaped `?`; such a message is replaced.
    pub(crate) fn invalid_url(url: &str, source: sqlx::Error) -> Self {
        let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
        if !parameters.contains('@') {
            return Self::connecting(source);
        }
        let message = "the URL is invalid: write a `?` or `@` that is part of a user name, a password \
                       or a parameter as %3F or %40";
        Self::new(ErrorKind::Configuration, message)
    }
}

fn classify(answer: &dyn DatabaseError) -> (ErrorKind, String) {
    let code = match number(answer) {
        Some(number) => number.to_string().into(),
        None => answer.code().unwrap_or_default(),
    };
    let (is_busy, is_transient) = match number(answer) {
        Some(number) => (is_busy_number(number), is_transient_number(number)),
        None => (is_busy(&code), is_transient(&code)),
    };
    if is_busy {
        let message =
            format!("another transaction holds a lock, or the statement timed out (code={code})");
        return (ErrorKind::Busy, message);
    }
    if is_transient {
        return (ErrorKind::Unavailable, format!("the database is not available (code={code})"));
    }
    if is_missing_table(&code, answer.message()) {
        let message = "the tables are missing: run `migrate` first, with the same table prefix";
        return (ErrorKind::Schema, message.to_owned());
    }
    if code == "1153" {
        let message = "the statement is larger than the server's max_allowed_packet";
        return (ErrorKind::Database, message.to_owned());
    }
    (ErrorKind::Database, format!("the database rejected the statement (code={code})"))
}

/// Returns MySQL's error number, which is more specific than its SQLSTATE; `None` for other
/// databases.
#[cfg(feature = "mysql")]
pub(crate) fn number(answer: &dyn DatabaseError) -> Option<u16> {
    let answer = answer.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    answer.map(sqlx::mysql::MySqlDatabaseError::number)
}

#[cfg(not(feature = "mysql"))]
pub(crate) fn number(_: &dyn DatabaseError) -> Option<u16> {
    None
}

/// PostgreSQL: serialization failure, deadlock, lock not available, query canceled (mostly by a
/// timeout).
fn is_busy(code: &str) -> bool {
    code.len() == 5 && code.starts_with("40") || matches!(code, "55P03" | "57014")
}

/// An SQLSTATE of PostgreSQL has five characters; SQLite's result codes are shorter numbers.
fn is_transient(code: &str) -> bool {
    if let (5, Some(class)) = (code.len(), code.get(..2)) {
        // Connection, resources, operator intervention, and idle transaction timeout.
        return matches!(class, "08" | "53" | "57") || code == "25P03";
    }
    // The low byte of an extended code is the primary code: busy, locked, I/O error, disk full. A
    // busy SQLite locks the whole file, so fewer rows would not help.
    code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 10 | 13))
}

/// MySQL and MariaDB: lock and timeout errors.
fn is_busy_number(number: u16) -> bool {
    matches!(
        number,
        // Lock wait timeout, deadlock, lock not available (nowait), row changed since the snapshot.
        1205 | 1213 | 3572 | 1020
        // Interrupted, or statement timeout.
        | 1317 | 1969 | 3024
    )
}

/// MySQL and MariaDB: transient errors. Numbers with a different meaning on each are left out.
fn is_transient_number(number: u16) -> bool {
    matches!(
        number,
        // Too many connections, of this user, or within an hour; too many transactions.
        1040 | 1203 | 1226 | 1637
        // Server shutdown, or connection killed.
        | 1053 | 1077 | 1079 | 1927
        // Network errors; but 1153 is a packet that is too large.
        | 1152 | 1154
            ..=1161 | 1184 | 2006 | 2013
        // Disk, table or lock table full.
        | 1021 | 1114 | 1206
        // Read only: during a failover; a new connection reaches the new primary.
        | 1290 | 1792 | 1836
    )
}

fn is_missing_table(code: &str, message: &str) -> bool {
    code == "42P01" || code == "1146" || (code == "1" && message.starts_with("no such table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transient_errors_are_recognized() {
        for busy in ["40001", "40P01", "55P03", "57014"] {
            assert!(is_busy(busy), "{busy}");
        }
        for passing in ["08006", "53300", "57P01", "25P03", "5", "517", "6", "13"] {
            assert!(is_transient(passing) && !is_busy(passing), "{passing}");
        }
        for busy in [1205, 1213, 3024] {
            assert!(is_busy_number(busy), "{busy}");
        }
        for passing in [1040, 1053, 1158, 2013] {
            assert!(is_transient_number(passing) && !is_busy_number(passing), "{passing}");
        }
        for lasting in [1062, 1146, 1064, 1406, 4025, 1153] {
            assert!(!is_transient_number(lasting) && !is_busy_number(lasting), "{lasting}");
        }
        for lasting in ["23505", "42P01", "22001", "1", "19", "2067", ""] {
            assert!(!is_transient(lasting) && !is_busy(lasting), "{lasting}");
        }
    }

    #[test]
    fn a_connection_that_breaks_during_tls_negotiation_is_transient() {
        let cut = sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".to_owned());

        assert!(Error::from(cut).is_transient());
        let lasting = sqlx::Error::Protocol("unknown authentication plugin".to_owned());
        assert_eq!(Error::connecting(lasting).kind(), ErrorKind::Configuration);
    }
}
