//! Checks whether the tables fit this library; the same in every dialect.

use std::error::Error as _;
use std::num::NonZeroU16;

use sqlx::error::DatabaseError;

use crate::error::{Error, ErrorKind, Result, sqlx::number};
use crate::store::{ClaimMode, DeliveryMode, Order, OutboxConfig};

/// Tables that a newer library has changed are not touched.
pub(in crate::store) fn refuse_newer(done: i32, known: usize) -> Result<()> {
    if usize::try_from(done).is_ok_and(|done| done <= known) {
        return Ok(());
    }
    let message = format!(
        "the tables are newer than this library (version {done}, known up to {known}): update it"
    );
    Err(Error::new(ErrorKind::Schema, message))
}

/// Whether no migration is lacking.
pub(in crate::store) fn is_current(done: i32, known: usize) -> Result<bool> {
    refuse_newer(done, known)?;
    Ok(usize::try_from(done).is_ok_and(|done| done == known))
}

/// Tables that lack a migration are not worked on.
pub(in crate::store) fn refuse_other(done: i32, known: usize) -> Result<()> {
    if is_current(done, known)? {
        return Ok(());
    }
    let message = format!(
        "the tables are older than this library (version {done} of {known}): run `migrate`"
    );
    Err(Error::new(ErrorKind::Schema, message))
}

/// Says what to do where a role may not change tables.
pub(in crate::store) fn explain_rights(error: Error) -> Error {
    let source = error.source().and_then(|source| source.downcast_ref::<sqlx::Error>());
    if !source.and_then(sqlx::Error::as_database_error).is_some_and(is_denied) {
        return error;
    }
    let message = "the tables are missing or older than this library, and this role may not create \
                   or change tables: run `migrate` once as the role that owns them";
    Error::new(ErrorKind::Schema, message).caused_by(error)
}

fn is_denied(answer: &dyn DatabaseError) -> bool {
    if let Some(number) = number(answer) {
        // Of a database, a table, a privilege of the server, a procedure.
        return matches!(number, 1044 | 1142 | 1227 | 1370);
    }
    let code = answer.code().unwrap_or_default();
    // PostgreSQL's, and SQLite's for a file that is opened read-only.
    code == "42501" || code.parse::<i32>().is_ok_and(|code| code & 0xff == 8)
}

/// Refuses a database that gives numbers out again. `repair` sets it right.
pub(in crate::store) fn refuse_behind(last: i64, newest: i64, repair: &str) -> Result<()> {
    if last >= newest {
        return Ok(());
    }
    let message = format!(
        "seq was set back: the database has counted up to {last}, but {newest} was given out \
         before, and events would overtake older ones of their key. Stop every writer and relay, \
         then run: {repair}"
    );
    Err(Error::new(ErrorKind::Configuration, message))
}

/// The configuration in `outbox_setting`.
pub(in crate::store) fn config(claim: &str, ordered: &str, shards: i16) -> Result<OutboxConfig> {
    let shards = u16::try_from(shards).ok().and_then(NonZeroU16::new);
    let broken = || Error::new(ErrorKind::Corrupt, "outbox_setting has no sound shard count");
    Ok(OutboxConfig { shards: shards.ok_or_else(broken)?, mode: mode(claim, ordered)? })
}

/// The mode that two words of `outbox_setting` stand for.
pub(in crate::store) fn mode(claim: &str, ordered: &str) -> Result<DeliveryMode> {
    let mode = ClaimMode::from_word(claim)
        .zip(Order::from_word(ordered))
        .map(|(claim, order)| DeliveryMode { claim, order });
    mode.ok_or_else(|| {
        let message = format!(
            "outbox_setting has no mode that this library knows (claim={claim:?}, \
             ordered={ordered:?})"
        );
        Error::new(ErrorKind::Corrupt, message)
    })
}
