//! Tests with pillarbox: of an application without a database, and of stores of your own.
//!
//! # Testing an application
//! A [`TestOutbox`] is an outbox in memory that knows what was committed. Its
//! [`relay`](TestOutbox::relay) is the real one, and delivers when it is told to, on a clock that the
//! test turns. A [`RecordingListener`] stands in for the listeners of the application.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use pillarbox::{Event, Listener, Listeners, Outbox, Relay, Store};
//! use pillarbox::tx::Begin;
//! use pillarbox_testkit::{RecordingListener, Refusal, TestOutbox, assert_emitted};
//! use serde::{Deserialize, Serialize};
//!
//! // The application: a handler that emits, and how its relay is put together.
//! #[derive(Serialize, Deserialize, Event)]
//! #[event("order.placed", aggregate = "order")]
//! struct OrderPlaced { #[event(id)] order_id: i64, email: String }
//!
//! async fn place_order(outbox: &Outbox, pool: impl Begin, order_id: i64) -> pillarbox::Result<()> {
//!     let mut tx = outbox.begin(pool).await?;
//!     tx.emit(&OrderPlaced { order_id, email: "ada@example.com".into() }).await?;
//!     tx.commit().await
//! }
//!
//! fn relay(store: Arc<dyn Store>, mail: impl Listener<OrderPlaced>) -> Relay {
//!     Relay::new(store, Listeners::new().on(mail))
//! }
//!
//! // The test; `#[tokio::test]` is enough of a runtime.
//! # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
//! let (app, mail) = (TestOutbox::new(), RecordingListener::new());
//! let listener = mail.clone();
//! let relay = app.relay(move |store| relay(store, listener.clone()));
//!
//! place_order(&app.outbox(), app.store(), 7).await?;
//! assert_emitted!(app, OrderPlaced { order_id: 7, email } if email.starts_with("ada"));
//!
//! mail.refuse(Refusal::retry("the mail server is away"));
//! relay.run_until_idle().await;
//! assert!(mail.received::<OrderPlaced>().is_empty());
//!
//! app.advance(Duration::from_secs(60)); // its retry is due
//! relay.run_until_idle().await;
//! assert_eq!(mail.received::<OrderPlaced>().len(), 1);
//! # Ok::<(), pillarbox::Error>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Testing a store
//! A case is a plain async function on a [`Backend`]; the two macros list every case once and
//! make one named test of each. A backend that cannot show a case says why, and the case is
//! skipped with that reason instead of passing in silence.
//!
//! - [`store_conformance!`] proves a [`Store`](pillarbox::Store): leases, fences, order, verdicts,
//!   row claims, operations, audit, purges.
//! - [`tx_conformance!`] proves a transaction: an event is there if and only if it committed.
//!
//! The memory store in the suites. In a test file of your own, with `tokio` (features `macros`
//! and `rt`) among the dev-dependencies, and your own type in place of [`MemoryBackend`]:
//!
//! ```
//! mod store {
//!     // store::memory::lease::a_lease_is_renewed and so on.
//!     pillarbox_testkit::store_conformance!(memory, pillarbox_testkit::MemoryBackend);
//! }
//!
//! mod tx {
//!     // tx::memory::commit::rows_and_events_appear_together and so on.
//!     pillarbox_testkit::tx_conformance!(memory, pillarbox_testkit::MemoryBackend);
//! }
//! ```
//!
//! One case alone, without the macros:
//!
//! ```
//! use pillarbox_testkit::{Backend, MemoryBackend, conformance::store::seq};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let backend = MemoryBackend::open("own::seq").await.expect("memory is always there");
//! seq::a_deleted_seq_is_never_used_again(&backend).await;
//! backend.close().await;
//! # });
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Environment
//! | variable | meaning |
//! | --- | --- |
//! | `PILLARBOX_MYSQL_URL` | the server of `MysqlBackend`; each test has a database of its own on it |
//! | `PILLARBOX_POSTGRES_URL` | the server of `PostgresBackend`; each test has a schema of its own in it |
//! | `PILLARBOX_REQUIRE` | backends, separated by commas, whose absence fails a test |
//! | `PILLARBOX_SKIPS` | a file that gets one line per skipped test: name, tab, reason |
#![allow(clippy::unwrap_used, reason = "this crate is test support: a surprise fails the test")]

/// The program of docs/partitioning.md runs as a doctest.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../docs/partitioning.md")]
struct Partitioning;

mod app;
mod backend;
pub mod conformance;
pub mod fake;
mod fixture;
mod run;

pub use self::app::{RecordedCall, RecordingListener, Refusal, TestOutbox, TestRelay};
pub use self::backend::{
    Arrival, Backend, BoxError, Connection, Foreign, Held, Hold, Missing, Need, OwnTx,
};
pub use self::fixture::memory::{MemoryBackend, MemoryOwn};
#[cfg(feature = "mysql")]
pub use self::fixture::mysql::{MysqlBackend, MysqlOwn};
#[cfg(feature = "postgres")]
pub use self::fixture::postgres::{PostgresBackend, PostgresOwn};
#[cfg(feature = "sqlite")]
pub use self::fixture::sqlite::{SqliteBackend, SqliteOwn};
pub use self::run::{run, skip};
/// For the suite macros.
#[doc(hidden)]
pub use pillarbox::store::ClaimMode as __ClaimMode;
