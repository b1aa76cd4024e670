//! Gives leased rows back that are not delivered here.

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::OwnerId;
use crate::relay::settle::Fence;
use crate::relay::settle::locked::without_locked;
use crate::relay::store_tasks::{StoreTasks, within};
use crate::store::{RowLease, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

/// Releases rows, one batch at a time. A row whose release fails is free when its lease ends.
#[derive(Debug)]
pub(crate) struct Releases {
    owner: OwnerId,
    fence: Fence,
    observers: Observers,
    waiting: Vec<RowLease>,
    /// In the write under way.
    releasing: Vec<RowLease>,
}

impl Releases {
    pub(crate) fn new(fence: Fence, owner: OwnerId, observers: Observers) -> Self {
        Self { owner, fence, observers, waiting: Vec::new(), releasing: Vec::new() }
    }

    pub(crate) fn push(&mut self, rows: impl IntoIterator<Item = RowLease>) {
        self.waiting.extend(rows);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.releasing.is_empty()
    }

    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<u64>) -> A,
    ) {
        if !self.releasing.is_empty() || self.waiting.is_empty() {
            return;
        }
        self.releasing = std::mem::take(&mut self.waiting);
        let (rows, owner, fence) = (self.releasing.clone(), self.owner.clone(), self.fence);
        let (store, timeout) = (tasks.store(), tasks.timeout());
        let released = async move {
            let release = async |rows: Vec<RowLease>| release(&*store, fence, &owner, &rows).await;
            within(timeout, without_locked(&*store, rows, release)).await
        };
        tasks.run(released, answer);
    }

    /// Returns the rows that are free now, unless the write failed.
    pub(crate) fn answered(&mut self, released: Result<u64>) -> Vec<RowLease> {
        if let Err(error) = released {
            self.observers.on_event(&RelayEvent::failed(Component::Settle, &error));
        }
        std::mem::take(&mut self.releasing)
    }
}

async fn release(
    store: &dyn Store,
    fence: Fence,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    if fence == Fence::LocalRows {
        crash_point!("hot.release.before"?);
        let released = store.release_rows(owner, rows).await?;
        crash_point!("hot.release.after"?);
        return Ok(released);
    }
    crash_point!("rows.release.before"?);
    let released = store.release_rows(owner, rows).await;
    crash_point!("rows.release.after"?);
    released
}
