//! Operations on all dead letters that match a filter, page by page.

use std::sync::Arc;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::Seq;
use crate::store::{
    Action, Cursor, DeadLetter, Direction, Filter, List, MAX_BATCH, Operation, Status, Store,
    Target,
};

/// An operation on all dead letters that match a filter, page by page.
///
/// The first step finds the newest match. Later dead letters are not processed, so an event that
/// dies again is not replayed twice. Pages run from the oldest to the newest, so the events of a
/// key become new in the order in which they died.
///
/// # Examples
/// ```
/// # use pillarbox::{Admin, MemoryStore};
/// use pillarbox::store::{Action, Filter};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let admin = Admin::new(MemoryStore::new());
/// let mut operation = admin.operate_matching(Action::Discard, Filter::default());
/// while let Some(progress) = operation.step().await? {
///     println!("{} of {} discarded", progress.changed, progress.matched);
/// }
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a bulk operation does nothing until it is run"]
pub struct BulkOperation {
    store: Arc<dyn Store>,
    operation: Operation,
    filter: Filter,
    /// The last dead letter processed.
    after: Option<Cursor>,
    /// The newest match when the operation started.
    end: Option<Cursor>,
    progress: Progress,
}

/// The progress of a [`BulkOperation`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The number of matching events processed so far.
    pub matched: u64,
    /// The number of events changed. The others were changed concurrently by someone else.
    pub changed: u64,
}

impl BulkOperation {
    pub(super) fn new(store: Arc<dyn Store>, action: Action, mut filter: Filter) -> Self {
        if action == Action::Skip {
            // Only held events can be skipped.
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

    /// Sets who runs the operation, for the audit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 256 characters or a NUL.
    pub fn by(mut self, who: impl Into<String>) -> Result<Self> {
        self.operation = self.operation.by(who)?;
        Ok(self)
    }

    /// Sets the reason, for the audit.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 1000 characters or a NUL.
    pub fn reason(mut self, why: impl Into<String>) -> Result<Self> {
        self.operation = self.operation.reason(why)?;
        Ok(self)
    }

    /// Runs all pages and returns how many events matched and how many were changed.
    ///
    /// # Errors
    /// Returns the store's error. Earlier pages stay committed; run the operation again for the
    /// rest.
    ///
    /// # Cancel safety
    /// If the future is dropped, each page is either committed or not; later pages are not run.
    pub async fn run(mut self) -> Result<Progress> {
        while self.step().await?.is_some() {}
        Ok(self.progress)
    }

    /// Runs the next page and returns the progress; `None` at the end.
    ///
    /// # Errors
    /// Returns the store's error. The next step repeats the page.
    ///
    /// # Cancel safety
    /// If the future is dropped, the page is either committed or not, and the next step repeats it.
    /// The changes of a dropped step are not counted.
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

    /// Returns the end of the operation: the newest match at its start.
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
