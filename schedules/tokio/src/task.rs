//! A set of tasks.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

pub use shuttle_tokio::task::{JoinError, JoinHandle, LocalKey, yield_now};

/// Tasks that end with their set.
pub struct JoinSet<T> {
    tasks: Vec<Pin<Box<JoinHandle<T>>>>,
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
        self.tasks.iter().for_each(|task| task.abort());
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// One more task.
    pub fn spawn(&mut self, task: impl Future<Output = T> + Send + 'static) {
        self.tasks.push(Box::pin(shuttle_tokio::spawn(task)));
    }

    /// The next task that has ended, when one has.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    /// A task that has ended, if one has already.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        match self.poll_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(ended) => ended,
            Poll::Pending => None,
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.tasks.is_empty() {
            return Poll::Ready(None);
        }
        for at in 0..self.tasks.len() {
            if let Poll::Ready(ended) = self.tasks[at].as_mut().poll(cx) {
                drop(self.tasks.remove(at));
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
