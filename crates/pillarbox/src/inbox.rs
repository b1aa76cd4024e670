//! The inbox: records incoming events, so that each has its effect once.

use std::borrow::Cow;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::event::check_text;
use crate::table::{TablePrefix, Tables};
use crate::tx::{Accept, Accepted, PayloadHash, Tx};

/// Longest consumer name, in characters.
pub const MAX_CONSUMER: usize = 256;
/// Longest name of a source, in characters.
pub const MAX_SOURCE: usize = 128;
/// Longest id of an incoming event, in characters.
pub const MAX_INBOX_ID: usize = 255;

/// Records which events a consumer has processed, in the consumer's own transaction.
///
/// The record and the effect commit together, so the effect happens exactly once per consumer,
/// source and event id, however often the event arrives.
///
/// # Examples
/// ```
/// use pillarbox::{Accepted, Inbox, MemoryStore, PayloadHash};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let store = MemoryStore::new();
/// let inbox = Inbox::new("billing")?;
/// let (id, payload) = ("01J9", br#"{"order": 7}"#);
///
/// for arrival in 1..=2 {
///     let mut tx = store.open();
///     match inbox.accept(&mut tx, "shop", id, PayloadHash::of(payload)).await? {
///         Accepted::FirstTime => { /* apply the effect on `tx` */ assert_eq!(arrival, 1) }
///         Accepted::Duplicate => assert_eq!(arrival, 2),
///         Accepted::Conflict => unreachable!("the payload is the same"),
///     }
///     tx.commit()?;
/// }
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Inbox {
    consumer: Cow<'static, str>,
    tables: Tables,
}

impl Inbox {
    /// Creates the inbox of a consumer. The name is part of every record: do not change it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, longer than 256
    /// characters, or has control characters.
    pub fn new(consumer: impl Into<Cow<'static, str>>) -> Result<Self> {
        let consumer = consumer.into();
        check_text("consumer", &consumer, MAX_CONSUMER)?;
        Ok(Self { consumer, tables: Tables::default() })
    }

    /// Sets the prefix of the table names.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = self.tables.with_prefix(prefix);
        self
    }

    /// Uses unnamed statements, for a pooler in transaction mode; see
    /// [`Outbox::pooler`](crate::Outbox::pooler).
    #[must_use]
    pub fn pooler(mut self) -> Self {
        self.tables = self.tables.pooler();
        self
    }

    /// Records an event in the transaction and returns whether it is the first time.
    ///
    /// A second transaction with the same event waits until the first one has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a name exceeds its limit;
    /// [`ErrorKind::NoTransaction`](crate::ErrorKind::NoTransaction) on a connection without a
    /// transaction: a record that commits before the effect could lose the effect.
    ///
    /// # Cancel safety
    /// If the future is dropped, the record may or may not be in the transaction: roll it back. A
    /// listener is dropped at its `delivery_timeout`: begin its transaction with
    /// [`Outbox::begin`](crate::Outbox::begin), which is safe to drop at any point. On PostgreSQL a
    /// transaction begun by sqlx's own pool that is dropped during its begin stays open in the
    /// pool, and later statements on that connection become part of it.
    pub async fn accept(
        &self,
        tx: impl Tx,
        source: &str,
        event_id: &str,
        payload_hash: PayloadHash,
    ) -> Result<Accepted> {
        self.accept_for(tx, source, event_id, payload_hash, None).await
    }

    /// Like [`accept`](Self::accept), and stores the event's tenant.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    ///
    /// # Cancel safety
    /// As [`accept`](Self::accept).
    pub async fn accept_for(
        &self,
        tx: impl Tx,
        source: &str,
        event_id: &str,
        payload_hash: PayloadHash,
        tenant_id: Option<&str>,
    ) -> Result<Accepted> {
        check_text("source", source, MAX_SOURCE)?;
        check_text("event id", event_id, MAX_INBOX_ID)?;
        if let Some(tenant) = tenant_id {
            check_text("tenant", tenant, crate::event::MAX_TENANT)?;
        }
        let consumer = &*self.consumer;
        crash_point!("inbox.before"?);
        let accepted = tx
            .accept(&Accept {
                tables: &self.tables,
                consumer,
                source,
                event_id,
                tenant_id,
                payload_hash,
            })
            .await;
        crash_point!("inbox.after"?);
        accepted
    }
}
