//! Transactions on the memory store: what they write is seen by nobody until they commit.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::id::{EventId, Seq};
use crate::store::memory::MemoryStore;
use crate::store::memory::event::Event;
use crate::store::memory::state::Noted;
use crate::tx::{Accept, Accepted, Begin, Insert, Inserted, LocalLease, OpenTx, PayloadHash, Tx};

/// An open transaction on a [`MemoryStore`].
///
/// # Examples
/// ```
/// use pillarbox::{Envelope, MemoryStore, Outbox};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let (store, outbox) = (MemoryStore::new(), Outbox::new());
///
/// let mut own = store.open();
/// outbox.emit_envelope(&mut own, Envelope::json("order.placed", &7)?).await?;
/// own.commit()?;
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a transaction that is dropped is rolled back"]
pub struct MemoryTx {
    store: MemoryStore,
    writes: Vec<Write>,
    savepoints: Vec<usize>,
    keys: Option<OwnedMutexGuard<()>>,
}

enum Write {
    Event(Seq, Box<Event>, EventId),
    Accept((String, String, String), PayloadHash),
}

impl Write {
    fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(_, event, _) => Some(event),
            Self::Accept(..) => None,
        }
    }
}

impl std::fmt::Debug for Write {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(seq, _, id) => write!(f, "Event({} {id})", seq.0),
            Self::Accept(entry, _) => write!(f, "Accept({entry:?})"),
        }
    }
}

impl MemoryStore {
    /// Opens a transaction of the caller's own.
    pub fn open(&self) -> MemoryTx {
        MemoryTx { store: self.clone(), writes: Vec::new(), savepoints: Vec::new(), keys: None }
    }
}

impl MemoryTx {
    /// Commits what was written.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] when another transaction committed one of its ids first.
    pub fn commit(self) -> Result<()> {
        let now = self.store.clock.now();
        let mut state = self.store.state();
        for write in &self.writes {
            let taken = match write {
                Write::Event(_, _, id) => state.ids.contains_key(id),
                Write::Accept(entry, _) => state.inbox.contains_key(entry),
            };
            if taken {
                let message = format!("written by another transaction first: {write:?}");
                let error = Error::new(ErrorKind::Duplicate, message);
                return Err(error.leaving(TxFate::RolledBack));
            }
        }
        for write in self.writes {
            match write {
                Write::Event(seq, event, id) => {
                    state.ids.insert(id, seq);
                    state.events.insert(seq, *event);
                }
                Write::Accept(entry, hash) => {
                    state.inbox.insert(entry, Noted { hash, at: now });
                }
            }
        }
        Ok(())
    }

    async fn lock(&mut self, insert: &Insert<'_>) {
        if !insert.locks.is_empty() && self.keys.is_none() {
            self.keys = Some(Arc::clone(&self.store.keys).lock_owned().await);
        }
    }

    fn write(&mut self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        let now = self.store.clock.now();
        let mut state = self.store.state();
        let before = self.writes.len();
        let mut places = Vec::new();
        for envelope in insert.envelopes {
            let id = envelope.event_id();
            let ours = self.writes.iter().any(|w| matches!(w, Write::Event(_, _, i) if i == id));
            if ours || state.ids.contains_key(id) {
                self.writes.truncate(before);
                let message = format!("an event with this id exists already (event={id})");
                return Err(Error::new(ErrorKind::Duplicate, message).leaving(TxFate::Open));
            }
            let seq = state.next_seq();
            let mut event = Box::new(state.seal(envelope, now));
            if let Some(hot) = insert.hot.filter(|_| LocalLease::leases(envelope)) {
                event.lease = Some((hot.owner.clone(), now.saturating_add(hot.length)));
                event.token = LocalLease::TOKEN;
            }
            places.push(insert.hot.filter(|hot| hot.wants_position(envelope)).map(|_| Inserted {
                seq,
                shard: event.shard,
                occurred_at: event.envelope.moment().unwrap_or(now),
                is_next: event.key.as_deref().is_none_or(|key| {
                    let mut older = self.writes[..before].iter().filter_map(Write::event);
                    !state.is_pending(key) && older.all(|it| it.key.as_deref() != Some(key))
                }),
            }));
            self.writes.push(Write::Event(seq, event, id.clone()));
        }
        Ok(places)
    }
}

impl Tx for &mut MemoryTx {
    async fn insert(self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        self.lock(insert).await;
        self.write(insert)
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        let entry =
            (accept.consumer.to_owned(), accept.source.to_owned(), accept.event_id.to_owned());
        let ours = self.writes.iter().find_map(|write| match write {
            Write::Accept(known, hash) if *known == entry => Some(*hash),
            _ => None,
        });
        let known = ours.or_else(|| self.store.state().inbox.get(&entry).map(|noted| noted.hash));
        let Some(known) = known else {
            self.writes.push(Write::Accept(entry, accept.payload_hash));
            return Ok(Accepted::FirstTime);
        };
        if known == accept.payload_hash { Ok(Accepted::Duplicate) } else { Ok(Accepted::Conflict) }
    }
}

impl Begin for &MemoryStore {
    type Tx = MemoryTx;

    async fn begin(self) -> Result<MemoryTx> {
        Ok(self.open())
    }
}

impl OpenTx for MemoryTx {
    type Connection = Self;

    fn connection(&self) -> &Self {
        self
    }

    fn connection_mut(&mut self) -> &mut Self {
        self
    }

    async fn insert(&mut self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        self.lock(insert).await;
        self.write(insert)
    }

    async fn prove(&mut self) -> Result<()> {
        Ok(())
    }

    async fn savepoint(&mut self) -> Result<()> {
        self.savepoints.push(self.writes.len());
        Ok(())
    }

    async fn release(&mut self) -> Result<()> {
        self.savepoints.pop();
        Ok(())
    }

    async fn rollback_to(&mut self) -> Result<()> {
        self.abandon();
        Ok(())
    }

    fn abandon(&mut self) {
        if let Some(length) = self.savepoints.pop() {
            self.writes.truncate(length);
        }
    }

    async fn commit(self) -> Result<()> {
        Self::commit(self)
    }

    async fn rollback(self) -> Result<()> {
        Ok(())
    }
}
