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
}

fn classify(answer: &dyn DatabaseError) -> (ErrorKind, String) {
    let code = answer.code().unwrap_or_default();
    if is_transient(&code) {
        return (ErrorKind::Unavailable, format!("the database is busy (code={code})"));
    }
    if is_missing_table(&code, answer.message()) {
        let message = "the tables are missing: run `migrate` first, with the same table prefix";
        return (ErrorKind::Schema, message.to_owned());
    }
    (ErrorKind::Database, format!("the database refused the statement (code={code})"))
}

/// PostgreSQL's SQLSTATE has five characters; SQLite's result codes are shorter numbers.
fn is_transient(code: &str) -> bool {
    if let (5, Some(class)) = (code.len(), code.get(..2)) {
        // Connection, serialisation and deadlock, resources, locks, and an operator at work.
        return matches!(class, "08" | "40" | "53" | "57") || code == "55P03";
    }
    // The low byte of an extended code is the code itself: busy, locked, I/O error, disk full.
    code.parse::<i32>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 10 | 13))
}

fn is_missing_table(code: &str, message: &str) -> bool {
    code == "42P01" || (code == "1" && message.starts_with("no such table"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_is_told_from_what_will_not() {
        for passing in ["40001", "40P01", "08006", "53300", "57P01", "55P03", "5", "517", "6", "13"]
        {
            assert!(is_transient(passing), "{passing}");
        }
        for lasting in ["23505", "42P01", "22001", "1", "19", "2067", ""] {
            assert!(!is_transient(lasting), "{lasting}");
        }
    }
}
