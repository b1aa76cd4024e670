//! Whether the tables fit this library, the same question in every dialect.

use std::num::NonZeroU16;

use crate::error::{Error, ErrorKind, Result};
use crate::store::Layout;

/// Tables that a newer library has changed are not touched.
pub(super) fn refuse_newer(done: i32, known: usize) -> Result<()> {
    if usize::try_from(done).is_ok_and(|done| done <= known) {
        return Ok(());
    }
    let message = format!(
        "the tables are newer than this library (version {done}, known up to {known}): update it"
    );
    Err(Error::new(ErrorKind::Schema, message))
}

/// Tables that lack a migration are not worked on.
pub(super) fn refuse_other(done: i32, known: usize) -> Result<()> {
    refuse_newer(done, known)?;
    if usize::try_from(done).is_ok_and(|done| done == known) {
        return Ok(());
    }
    let message = format!(
        "the tables are older than this library (version {done} of {known}): run `migrate`"
    );
    Err(Error::new(ErrorKind::Schema, message))
}

/// Checks what `outbox_setting` says; a relay with other settings must not start.
pub(super) fn layout(claim: &str, shards: i16) -> Result<Layout> {
    if claim != "shards" {
        let message =
            format!("the tables are set to claim by {claim}, this relay claims by shards");
        return Err(Error::new(ErrorKind::Configuration, message));
    }
    let shards = u16::try_from(shards).ok().and_then(NonZeroU16::new);
    let broken = || Error::new(ErrorKind::Corrupt, "outbox_setting has no sound shard count");
    Ok(Layout { shards: shards.ok_or_else(broken)? })
}
