//! What an operator does: look at dead letters, replay them, skip them, discard them.

mod bulk;

use std::{collections::HashSet, sync::Arc};

pub use self::bulk::{BulkOperation, Progress};
use crate::error::Result;
use crate::id::EventId;
use crate::store::{
    self, Action, AuditEntry, DeadLetter, Filter, List, MAX_BATCH, Operated, Operation, Store,
    StoredEvent, Target,
};

/// The operator's hand on a store.
///
/// The relay finds what was replayed at its next sweep; wake it
/// ([`RelayHandle::wake`](crate::RelayHandle::wake)) to have it delivered at once.
///
/// # Examples
/// ```
/// use pillarbox::store::{Filter, List, Operation};
/// use pillarbox::{Admin, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let admin = Admin::new(MemoryStore::new());
///
/// let page = List {
///     filter: Filter { event_type: Some("mail.sent".into()), ..Filter::default() },
///     ..List::default()
/// };
/// for letter in admin.dead_letters(&page).await? {
///     println!("{}: {}", letter.event_id, letter.last_error.unwrap_or_default());
///     admin.operate(Operation::replay([letter.seq]).by("ana")?).await?;
/// }
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admin {
    store: Arc<dyn Store>,
}

impl Admin {
    /// The operator's hand on this store.
    pub fn new(store: impl Store) -> Self {
        Self { store: store::share(store) }
    }

    /// A page of dead letters and held events, without their payloads.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, MemoryStore};
    /// use pillarbox::store::List;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let admin = Admin::new(MemoryStore::new());
    /// let mut list = List::default();
    /// loop {
    ///     let page = admin.dead_letters(&list).await?;
    ///     let Some(last) = page.last() else { break };
    ///     list.after = Some(last.cursor());
    /// }
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the store answers.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        self.store.dead_letters(list).await
    }

    /// How many dead letters and held events there are.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, MemoryStore};
    /// use pillarbox::store::{Filter, Status};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let admin = Admin::new(MemoryStore::new());
    /// let held = Filter { status: Some(Status::Held), ..Filter::default() };
    /// assert_eq!(admin.count(&held).await?, 0);
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the store answers.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn count(&self, filter: &Filter) -> Result<u64> {
        self.store.count_dead(filter).await
    }

    /// One event with its payload and its state, whatever that is.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, Envelope, MemoryStore, Outbox};
    /// use pillarbox::store::Status;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let store = MemoryStore::new();
    /// # let mut tx = Outbox::new().begin(&store).await?;
    /// # let id = tx.emit_envelope(Envelope::json("order.placed", &7)?).await?.unwrap();
    /// # tx.commit().await?;
    /// # let admin = Admin::new(store);
    /// let event = admin.event(&id).await?.expect("it was emitted");
    /// assert_eq!(event.status, Status::New);
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the store answers.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        self.store.event(id).await
    }

    /// What failed and was done about one event, oldest first, also after it was discarded.
    ///
    /// The id is an [`EventId`], or any text that [`DeadLetter::event_id`] shows.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, EventId, MemoryStore};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let (admin, id) = (Admin::new(MemoryStore::new()), EventId::generate());
    /// for line in admin.audit_trail(&id).await? {
    ///     println!("{} {} {}", line.at, line.action, line.error.unwrap_or_default());
    /// }
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the store answers.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn audit_trail(&self, id: impl AsRef<str>) -> Result<Vec<AuditEntry>> {
        self.store.audit_trail(id.as_ref()).await
    }

    /// Replays, skips or discards any number of events, by id or by `seq`, and says how many of
    /// them are dead letters or held, and which were changed.
    ///
    /// Each [`MAX_BATCH`] of them are one transaction. An event that is not in the state for it is
    /// left alone, so that a call can be repeated after an error.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, EventId, MemoryStore};
    /// use pillarbox::store::Operation;
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let (admin, ids) = (Admin::new(MemoryStore::new()), vec![EventId::generate()]);
    /// let discard = Operation::discard(ids).by("ana")?.reason("sent by hand")?;
    /// let discarded = admin.operate(discard).await?;
    /// println!("{} of {} discarded", discarded.changed.len(), discarded.matched);
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// What the store answers. What was done to earlier batches stays done.
    ///
    /// # Cancel safety
    /// Each batch is done whole or not at all; the later ones are not done.
    pub async fn operate(&self, mut operation: Operation) -> Result<Operated> {
        let mut seen = HashSet::new();
        let targets = std::mem::take(&mut operation.targets).into_iter();
        let targets: Vec<Target> = targets.filter(|target| seen.insert(target.clone())).collect();
        let mut operated = Operated::default();
        for batch in targets.chunks(MAX_BATCH) {
            operation.targets = batch.to_vec();
            let done = self.store.operate(&operation).await?;
            operated.matched += done.matched;
            operated.changed.extend(done.changed);
        }
        Ok(operated)
    }

    /// Replays, skips or discards everything that matches now; nothing happens until it is run.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Admin, MemoryStore};
    /// use pillarbox::store::{Action, Filter};
    ///
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let admin = Admin::new(MemoryStore::new());
    /// let refused = Filter { error: Some("connection refused".into()), ..Filter::default() };
    /// let replayed = admin
    ///     .operate_matching(Action::Replay, refused)
    ///     .by("ana")?
    ///     .reason("the mail server is back")?
    ///     .run()
    ///     .await?;
    /// println!("{} of {} replayed", replayed.changed, replayed.matched);
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn operate_matching(&self, action: Action, filter: Filter) -> BulkOperation {
        BulkOperation::new(Arc::clone(&self.store), action, filter)
    }
}

#[cfg(test)]
mod tests;
