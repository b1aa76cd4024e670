//! The backends that come with the kit.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use std::time::Duration;

use pillarbox::tx::{Insert, Tx};
use pillarbox::{Envelope, Result, Tables};

pub(crate) mod memory;
#[cfg(feature = "mysql")]
pub(crate) mod mysql;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod name;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod sqlx_methods;

/// A limit on waits for a connection or a lock, which no healthy test reaches.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(180);

/// Inserts events with the default tables, as an application's own transaction does.
async fn insert(tx: impl Tx, envelopes: &[Envelope]) -> Result<()> {
    let tables = Tables::default();
    tx.insert(&Insert { tables: &tables, envelopes, locks: &[], hot: None }).await.map(drop)
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).expect("a test's durations are short")
}
