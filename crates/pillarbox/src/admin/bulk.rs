//! A walk over all dead letters that match, from the oldest to the newest of its beginning.

use std::sync::Arc;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::Seq;
use crate::store::{
    Action, Cursor, DeadLetter, Direction, Filter, List, MAX_BATCH, Operation, Status, Store,
    Target,
};

/// An operation on everything that matches, page by page.
///
/// The first step looks where the list ends; what is given up later is not touched, so that an
/// event which dies again is not replayed twice. It goes from the oldest to the newest, so that
/// the events of a key come back in the order in which they were given up.
///
/// # Examples
/// ```
/// # use pillarbox::{Admin, MemoryStore};
/// use pillarbox::store::{Action, Filter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let admin = Admin::new(MemoryStore::new());
/// let mut walk = admin.operate_matching(Action::Discard, Filter::default());
/// while let Some(progress) = walk.step().await? {
///     println!("{} of {} discarded", progress.changed, progress.matched);
/// }
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until it is run"]
pub struct BulkOperation {
    store: Arc<dyn Store>,
    operation: Operation,
    filter: Filter,
    /// The last one seen.
    after: Option<Cursor>,
    /// The newest one when the walk began.
    end: Option<Cursor>,
    progress: Progress,
}

/// How far a walk has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Events that match and that it has come across.
    pub matched: u64,
    /// Events that it has changed. The others were changed by someone else meanwhile.
    pub changed: u64,
}

impl BulkOperation {
    pub(super) fn new(store: Arc<dyn Store>, action: Action, mut filter: Filter) -> Self {
        if action == Action::Skip {
            // Nothing else can be skipped; a filter that asks for something else finds nothing.
            filter.status = filter.status.or(Some(Status::Held));
        }
        Self {
            store,
            operation: Operation::of(action, [] as [Seq; 0]),
            filter,
            after: None,
            end: None,
            progress: Progress::default(),
        }
    }

    /// Says in the audit who did it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 256 characters or a NUL.
    pub fn by(mut self, who: impl Into<String>) -> Result<Self> {
        self.operation = self.operation.by(who)?;
        Ok(self)
    }

    /// Says in the audit why.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 1000 characters or a NUL.
    pub fn reason(mut self, why: impl Into<String>) -> Result<Self> {
        self.operation = self.operation.reason(why)?;
        Ok(self)
    }

    /// Goes to the end, and says how many events matched and how many were changed.
    ///
    /// # Errors
    /// What the store answers. What was done before stays done; run it again for the rest.
    ///
    /// # Cancel safety
    /// Each page is done whole or not at all; the later ones are not done.
    pub async fn run(mut self) -> Result<Progress> {
        while self.step().await?.is_some() {}
        Ok(self.progress)
    }

    /// Does the next page, and says how far it has come; `None` at the end.
    ///
    /// # Errors
    /// What the store answers. The next step begins where this one did.
    ///
    /// # Cancel safety
    /// The page is done whole or not at all, and the next step begins where this one did. What a
    /// dropped step has done after all is not counted.
    pub async fn step(&mut self) -> Result<Option<Progress>> {
        let page = self.page().await?;
        let Some(last) = page.last().map(DeadLetter::cursor) else { return Ok(None) };
        self.operation.targets = page.iter().map(|letter| Target::Seq(letter.seq)).collect();
        crash_point!("operate.before"?);
        let operated = self.store.operate(&self.operation).await?;
        crash_point!("operate.after"?);
        self.after = Some(last);
        self.progress.matched += page.len() as u64;
        self.progress.changed += operated.changed.len() as u64;
        Ok(Some(self.progress))
    }

    async fn page(&mut self) -> Result<Vec<DeadLetter>> {
        let Some(end) = self.end().await? else { return Ok(Vec::new()) };
        let mut page = self.list(Direction::OldestFirst, self.after, MAX_BATCH).await?;
        page.retain(|letter| letter.cursor() <= end);
        Ok(page)
    }

    /// Where the walk ends: at what was the newest when it was first asked for.
    async fn end(&mut self) -> Result<Option<Cursor>> {
        if self.end.is_none() {
            let newest = self.list(Direction::NewestFirst, None, 1).await?;
            self.end = newest.first().map(DeadLetter::cursor);
        }
        Ok(self.end)
    }

    async fn list(
        &self,
        direction: Direction,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Vec<DeadLetter>> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        self.store
            .dead_letters(&List { filter: self.filter.clone(), direction, after, limit })
            .await
    }
}
