#![doc = include_str!("docs/crate.md")]
#![forbid(unsafe_code)]

mod admin;
pub mod clock;
mod connect;
pub mod context;
#[cfg(feature = "crash-points")]
pub mod crash_point;
#[cfg(not(feature = "crash-points"))]
mod crash_point;
mod envelope;
mod error;
mod event;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod id;
mod inbox;
pub mod layer;
mod listener;
mod local_queue;
mod outbox;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod pooled;
mod relay;
mod retry;
pub mod scheduler;
mod status;
pub mod store;
mod sync;
mod table;
pub mod telemetry;
pub mod tx;
mod verdict;
mod wake;

#[cfg(feature = "macros")]
pub use pillarbox_macros::Event;

pub use self::admin::{Admin, BulkOperation, Progress};
pub use self::clock::{Clock, SystemClock, Timestamp};
pub use self::connect::connect;
pub use self::context::Context;
pub use self::envelope::{
    Delivery, Envelope, Headers, InvalidRow, JsonText, MAX_CONTENT_TYPE, MAX_HEADER, MAX_HEADERS,
    MAX_HEADERS_SIZE, MAX_JSON_DEPTH, MAX_PAYLOAD, Payload, Row,
};
pub use self::error::{Error, ErrorKind, Result, TxFate};
pub use self::event::{
    AggregateType, Event, EventType, Key, MAX_AGGREGATE_ID, MAX_AGGREGATE_TYPE, MAX_EVENT_TYPE,
    MAX_KEY, MAX_TENANT,
};
pub use self::id::{Epoch, EventId, MAX_EVENT_ID, OwnerId, Seq, ShardId, Token};
pub use self::inbox::{Inbox, MAX_CONSUMER, MAX_INBOX_ID, MAX_SOURCE};
pub use self::listener::{Cx, Listener, Listeners, Pattern, Unroutable};
pub use self::outbox::{Hook, Outbox, OutboxTx, Savepoint};
#[cfg(shuttle)]
pub use self::relay::schedules;
pub use self::relay::{
    Maintenance, Relay, RelayHandle, Settings as RelaySettings, StopSummary, WriterHandle,
    WriterOnly,
};
pub use self::retry::{Backoff, OnDead, RetryPolicy};
pub use self::store::Store;
pub use self::store::memory::{MemoryStore, MemoryTx};
#[cfg(feature = "mysql")]
pub use self::store::mysql::MysqlStore;
#[cfg(feature = "postgres")]
pub use self::store::postgres::PostgresStore;
#[cfg(feature = "sqlite")]
pub use self::store::sqlite::SqliteStore;
pub use self::table::{TablePrefix, Tables};
pub use self::telemetry::Observer;
pub use self::tx::{Accepted, PayloadHash};
pub use self::verdict::{ErrorText, Failure, MAX_ERROR_TEXT, Next, Verdict};
