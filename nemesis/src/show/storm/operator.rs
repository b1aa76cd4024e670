//! An operator who replays every dead letter, again and again, and purges what is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::store::{Action, Filter, Purge};
use pillarbox::{Admin, Store};
use tokio::task::JoinHandle;

use crate::Result;
use crate::show::Stage;

/// How long between two replays.
const PAUSE: Duration = Duration::from_millis(200);

pub(super) struct Operator(JoinHandle<u64>);

impl Operator {
    pub(super) fn start(stage: &Stage, over: &Arc<AtomicBool>) -> Self {
        let (store, over) = (Arc::clone(&stage.place.store), Arc::clone(over));
        Self(tokio::spawn(async move {
            let mut replayed = 0;
            while !over.load(Ordering::Relaxed) {
                tokio::time::sleep(PAUSE).await;
                // A server that is away is asked again.
                replayed += replay(&store).await.unwrap_or(0);
                store.purge(&Purge::done(PAUSE).limit(100)).await.ok();
            }
            replayed
        }))
    }

    /// How many it has replayed.
    pub(super) async fn join(self) -> Result<usize> {
        Ok(usize::try_from(self.0.await?)?)
    }
}

pub(super) async fn replay_all(stage: &Stage) -> Result {
    replay(&stage.place.store).await?;
    Ok(())
}

async fn replay(store: &Arc<dyn Store>) -> pillarbox::Result<u64> {
    Admin::shared(Arc::clone(store)).operate_matching(Action::Replay, Filter::default()).run().await
}
