//! Calls of the store, each in a task of its own, so that a loop never waits for one of them.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinSet;

use crate::error::{Error, ErrorKind, Result};
use crate::scheduler::guarded;
use crate::store::Store;

/// Calls under way. Each answer says which part asked.
#[derive(Debug)]
pub(super) struct StoreTasks<A> {
    store: Arc<dyn Store>,
    timeout: Duration,
    tasks: JoinSet<A>,
}

impl<A: Send + 'static> StoreTasks<A> {
    /// Waits this long for an answer.
    pub(super) fn new(store: Arc<dyn Store>, timeout: Duration) -> Self {
        Self { store, timeout, tasks: JoinSet::new() }
    }

    pub(super) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Starts a call. Its answer is an error if it takes too long, or if the store panics.
    pub(super) fn call<T: 'static>(
        &mut self,
        call: impl Future<Output = Result<T>> + Send + 'static,
        answer: impl FnOnce(Result<T>) -> A + Send + 'static,
    ) {
        self.run(within(self.timeout, call), answer);
    }

    /// Starts work with timeouts of its own. Its answer is an error if the store panics.
    pub(super) fn run<T: 'static>(
        &mut self,
        work: impl Future<Output = Result<T>> + Send + 'static,
        answer: impl FnOnce(Result<T>) -> A + Send + 'static,
    ) {
        self.tasks.spawn(async move { answer(guarded("the store", work).await) });
    }

    /// The next answer; `None` if no call is under way.
    ///
    /// # Cancel safety
    /// A dropped wait loses no answer.
    pub(super) async fn next(&mut self) -> Option<A> {
        // Panics are answers, and no task is aborted before this is dropped.
        self.tasks.join_next().await?.ok()
    }

    /// The next answer, if it is here.
    pub(super) fn try_next(&mut self) -> Option<A> {
        self.tasks.try_join_next()?.ok()
    }
}

/// Waits for an answer of the store.
pub(super) async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T>>,
) -> Result<T> {
    tokio::time::timeout(timeout, call).await.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unavailable, "the database did not answer in time"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::memory::MemoryStore;

    #[tokio::test(start_paused = true)]
    async fn a_call_without_an_answer_is_an_error_of_who_asked() {
        let mut tasks = StoreTasks::new(Arc::new(MemoryStore::new()), Duration::from_secs(1));
        tasks.call(async { panic!("a bug") }, |answer: Result<()>| ("panicked", answer));
        tasks.call(std::future::pending(), |answer: Result<()>| ("hung", answer));

        for expected in ["panicked", "hung"] {
            let (asked, answer) = tasks.next().await.unwrap();
            assert_eq!((asked, answer.is_err()), (expected, true));
        }
        assert!(tasks.next().await.is_none());
    }
}
