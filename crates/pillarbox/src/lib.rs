#![doc = include_str!("docs/crate.md")]
#![forbid(unsafe_code)]

// Lets the derive's `::pillarbox` paths work in this crate's own tests.
#[cfg(test)]
extern crate self as pillarbox;

pub mod clock;
pub mod context;
mod emit;
mod envelope;
mod error;
mod event;
mod id;
mod inbox;
mod listen;
mod relay;
mod retry;
pub mod store;
mod table;
pub mod tx;
mod verdict;
mod wake;

#[cfg(feature = "macros")]
pub use pillarbox_macros::Event;

pub use self::clock::{Clock, SystemClock, Timestamp};
pub use self::context::Context;
pub use self::emit::{Hook, Outbox, OutboxTx, Savepoint};
pub use self::envelope::{
    BadRow, Delivery, Envelope, Headers, JsonText, MAX_CONTENT_TYPE, MAX_HEADER, MAX_HEADERS,
    MAX_JSON_DEPTH, MAX_PAYLOAD, Payload, Row,
};
pub use self::error::{Error, ErrorKind, Result, TxFate};
pub use self::event::{
    AggregateType, Event, EventType, Key, MAX_AGGREGATE_ID, MAX_AGGREGATE_TYPE, MAX_EVENT_TYPE,
    MAX_KEY, MAX_TENANT,
};
pub use self::id::{Epoch, EventId, MAX_EVENT_ID, OwnerId, Seq, ShardId, Token};
pub use self::inbox::{Inbox, MAX_CONSUMER, MAX_INBOX_ID, MAX_SOURCE};
pub use self::listen::{Cx, Listener, Listeners};
pub use self::retry::{Backoff, OnDead, RetryPolicy};
pub use self::store::Store;
pub use self::store::memory::{MemoryStore, MemoryTx};
pub use self::table::{TablePrefix, Tables};
pub use self::tx::{Accepted, PayloadHash};
pub use self::verdict::{ErrorText, Failure, MAX_ERROR_TEXT, Next, Verdict};
