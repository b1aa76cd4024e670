//! Which kind of error a database's answer is.

use sqlx::error::DatabaseError;

use super::{Error, ErrorKind};

impl From<sqlx::Error> for Error {
    fn from(source: sqlx::Error) -> Self {
        let (kind, message) = match &source {
            sqlx::Error::Database(answer) => classify(&**answer),
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => {
                (ErrorKind::Unavailable, "the database is out of reach".to_owned())
            }
            // A connection that ends while TLS is spoken of is told in this way.
            sqlx::Error::Protocol(said) if said.contains("SSLRequest") => {
                (ErrorKind::Unavailable, "the connection to the database broke".to_owned())
            }
            sqlx::Error::PoolClosed => {
                (ErrorKind::Unavailable, "the connection pool is closed".to_owned())
            }
            sqlx::Error::Configuration(_) | sqlx::Error::Tls(_) => {
                (ErrorKind::Configuration, "the database cannot be connected to".to_owned())
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
    /// What went wrong before a connection was there: the database's own words help most, and
    /// hold no password.
    pub(crate) fn connecting(source: sqlx::Error) -> Self {
        let error = Self::from(source);
        let said = error.source_text();
        let kind = match error.kind() {
            ErrorKind::Unavailable => ErrorKind::Unavailable,
            _ => ErrorKind::Configuration,
        };
        Self { kind, message: format!("cannot connect to the database: {said}"), ..error }
    }

    /// What is wrong with a URL. Its reader quotes a parameter that it does not take; and where a
    /// password has a bare `?`, what follows reads as one.
    pub(crate) fn unreadable(url: &str, source: sqlx::Error) -> Self {
        let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
        if !parameters.contains('@') {
            return Self::connecting(source);
        }
        let message = "the URL cannot be read: a `?` or `@` that is part of a user, a password or a \
                       parameter is written as %3F or %40";
        Self::new(ErrorKind::Configuration, message)
    }
}

fn classify(answer: &dyn DatabaseError) -> (ErrorKind, String) {
    let code = match number(answer) {
        Some(number) => number.to_string().into(),
        None => answer.code().unwrap_or_default(),
    };
    let (is_busy, passes) = match number(answer) {
        Some(number) => (is_busy_number(number), is_transient_number(number)),
        None => (is_busy(&code), is_transient(&code)),
    };
    if is_busy {
        let message = format!("another transaction is in the way, or time ran out (code={code})");
        return (ErrorKind::Busy, message);
    }
    if passes {
        return (ErrorKind::Unavailable, format!("the database is not available (code={code})"));
    }
    if is_missing_table(&code, answer.message()) {
        let message = "the tables are missing: run `migrate` first, with the same table prefix";
        return (ErrorKind::Schema, message.to_owned());
    }
    if code == "1153" {
        let message = "the statement is larger than max_allowed_packet of the server";
        return (ErrorKind::Database, message.to_owned());
    }
    (ErrorKind::Database, format!("the database refused the statement (code={code})"))
}

/// MySQL's error number, which says more than its SQLSTATE; `None` for other databases.
#[cfg(feature = "mysql")]
pub(crate) fn number(answer: &dyn DatabaseError) -> Option<u16> {
    let answer = answer.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>();
    answer.map(sqlx::mysql::MySqlDatabaseError::number)
}

#[cfg(not(feature = "mysql"))]
pub(crate) fn number(_: &dyn DatabaseError) -> Option<u16> {
    None
}

/// PostgreSQL's serialization failure and deadlock; a lock that was not granted; a statement that was
/// cancelled, mostly for taking too long.
fn is_busy(code: &str) -> bool {
    code.len() == 5 && code.starts_with("40") || matches!(code, "55P03" | "57014")
}

/// PostgreSQL's SQLSTATE has five characters; SQLite's result codes are shorter numbers.
fn is_transient(code: &str) -> bool {
    if let (5, Some(class)) = (code.len(), code.get(..2)) {
        // Connection, resources, an operator at work, and a transaction that was idle for too long.
        return matches!(class, "08" | "53" | "57") || code == "25P03";
    }
    // The low byte of an extended code is the code itself: busy, locked, I/O error, disk full. Busy
    // is the whole file there, so that fewer rows would not help.
    code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 10 | 13))
}

/// The MySQL family's numbers for locks and time limits.
fn is_busy_number(number: u16) -> bool {
    matches!(
        number,
        // Lock wait timeout, deadlock, a lock not granted at once, a row changed under a snapshot.
        1205 | 1213 | 3572 | 1020
        // Interrupted, or out of its statement time.
        | 1317 | 1969 | 3024
    )
}

/// The MySQL family's numbers; some mean different things on MySQL and MariaDB and are left out.
fn is_transient_number(number: u16) -> bool {
    matches!(
        number,
        // Too many connections, of this user, or of its hourly ration; too many transactions.
        1040 | 1203 | 1226 | 1637
        // Going down, or killed.
        | 1053 | 1077 | 1079 | 1927
        // The connection is gone, or its packets are; but 1153 is a packet that is too large.
        | 1152 | 1154
            ..=1161 | 1184 | 2006 | 2013
        // Disk, table or lock table full.
        | 1021 | 1114 | 1206
        // Read only: a primary on its way to be a replica; a fresh connection finds the new one.
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
    fn what_may_pass_is_told_from_what_will_not() {
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
    fn a_connection_that_broke_is_worth_another_one() {
        let cut = sqlx::Error::Protocol("unexpected response from SSLRequest: 0x00".to_owned());

        assert!(Error::from(cut).is_transient());
        let lasting = sqlx::Error::Protocol("unknown authentication plugin".to_owned());
        assert_eq!(Error::connecting(lasting).kind(), ErrorKind::Configuration);
    }
}
