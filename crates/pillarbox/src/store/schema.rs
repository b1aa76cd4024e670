//! Whether the tables fit this library, the same question in every dialect.

use std::num::NonZeroU16;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{ClaimMode, Layout, Mode, Order};

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

/// What `outbox_setting` says.
pub(super) fn layout(claim: &str, ordered: &str, shards: i16) -> Result<Layout> {
    let shards = u16::try_from(shards).ok().and_then(NonZeroU16::new);
    let broken = || Error::new(ErrorKind::Corrupt, "outbox_setting has no sound shard count");
    Ok(Layout { shards: shards.ok_or_else(broken)?, mode: mode(claim, ordered)? })
}

/// The mode that two words of `outbox_setting` stand for.
pub(super) fn mode(claim: &str, ordered: &str) -> Result<Mode> {
    let mode = ClaimMode::from_word(claim)
        .zip(Order::from_word(ordered))
        .map(|(claim, order)| Mode { claim, order });
    mode.ok_or_else(|| {
        let message = format!(
            "outbox_setting has no mode that this library knows (claim={claim:?}, \
             ordered={ordered:?})"
        );
        Error::new(ErrorKind::Corrupt, message)
    })
}
