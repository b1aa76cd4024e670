//! A set of tasks that knows their ids.

use std::cell::Cell;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub use shuttle_tokio::task::{JoinHandle, LocalKey, yield_now};

thread_local! {
    static LAST: Cell<u64> = const { Cell::new(0) };
}

/// Which task of a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

/// A task that was aborted. One that panics ends the schedule, and with it the run.
#[derive(Debug)]
pub struct JoinError {
    id: Id,
    cause: shuttle_tokio::task::JoinError,
}

impl JoinError {
    /// Which task it was.
    pub fn id(&self) -> Id {
        self.id
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

/// A task that may be aborted.
#[derive(Debug)]
pub struct AbortHandle {
    id: Id,
}

impl AbortHandle {
    /// Which task it is.
    pub fn id(&self) -> Id {
        self.id
    }
}

/// Tasks that end with their set.
pub struct JoinSet<T> {
    tasks: Vec<(Id, Pin<Box<JoinHandle<T>>>)>,
}

impl<T> JoinSet<T> {
    /// One without tasks.
    pub fn new() -> Self {
        Self { tasks: Vec::new() }
    }

    /// How many have not been joined.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether all have been joined.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Aborts every task.
    pub fn abort_all(&mut self) {
        self.tasks.iter().for_each(|(_, task)| task.abort());
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// One more task.
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        let id = Id(LAST.replace(LAST.get() + 1));
        self.tasks.push((id, Box::pin(shuttle_tokio::spawn(task))));
        AbortHandle { id }
    }

    /// The next task that has ended, when one has.
    pub async fn join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// A task that has ended, if one has already.
    pub fn try_join_next_with_id(&mut self) -> Option<Result<(Id, T), JoinError>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => None,
        }
    }

    /// A task that has ended, if one has already.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        Some(self.try_join_next_with_id()?.map(|(_, ended)| ended))
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<(Id, T), JoinError>>> {
        if self.tasks.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.tasks.len() {
            if let Poll::Ready(ended) = self.tasks[at].1.as_mut().poll(cx) {
                let (id, _) = self.tasks.remove(at);
                let ended = ended.map(|it| (id, it)).map_err(|cause| JoinError { id, cause });
                return Poll::Ready(Some(ended));
            }
        }
        Poll::Pending
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}
