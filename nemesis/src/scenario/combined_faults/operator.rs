//! An operator who replays every dead letter, again and again, looks at what is done, and purges it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::Store;
use pillarbox::store::{List, MAX_BATCH, Operation, Purge};
use tokio::task::JoinHandle;

use crate::Result;
use crate::bank::Bank;
use crate::log::{Entry, Log};
use crate::scenario::{Environment, PROGRESS_TIMEOUT, now};

/// How long between two replays.
const PAUSE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) struct Operator {
    store: Arc<dyn Store>,
    bank: Bank,
    log: Log,
}

impl Operator {
    pub(super) fn new(env: &Environment) -> Result<Self> {
        let log = Log::open(&env.deployment.log(), "operator")?;
        Ok(Self {
            store: Arc::clone(&env.deployment.store),
            bank: env.deployment.bank.clone(),
            log,
        })
    }

    /// Starts one who is at it until it is over.
    pub(super) fn start(env: &Environment, over: &Arc<AtomicBool>) -> Result<AtWork> {
        let (operator, over) = (Self::new(env)?, Arc::clone(over));
        Ok(AtWork(tokio::spawn(async move {
            let (mut replayed, give_up) = (0, now() + PROGRESS_TIMEOUT);
            // On a busy machine it takes a while until something was given up.
            while !over.load(Ordering::Relaxed) || (replayed == 0 && now() < give_up) {
                tokio::time::sleep(PAUSE).await;
                // A server that is away is asked again.
                replayed += operator.replay().await.unwrap_or(0);
                operator.look_at_done().await.ok();
                operator.store.purge(&Purge::done(PAUSE).limit(100)).await.ok();
            }
            replayed
        })))
    }

    /// Replays what is dead or held. The log is told before: what comes after it is an answer.
    pub(super) async fn replay(&self) -> Result<usize> {
        let list = List { limit: u32::try_from(MAX_BATCH)?, ..List::default() };
        let dead = self.store.dead_letters(&list).await?;
        for letter in &dead {
            self.log.append(&Entry::Replay { id: &letter.event_id })?;
        }
        if dead.is_empty() {
            return Ok(0);
        }
        let replay = Operation::replay(dead.into_iter().map(|letter| letter.seq));
        Ok(self.store.operate(&replay).await?.changed.len())
    }

    /// Tells the log what the database has as done.
    pub(super) async fn look_at_done(&self) -> Result {
        for id in self.bank.done().await? {
            self.log.append(&Entry::Done { id: &id })?;
        }
        Ok(())
    }
}

pub(super) struct AtWork(JoinHandle<usize>);

impl AtWork {
    /// How many it has replayed.
    pub(super) async fn join(self) -> Result<usize> {
        Ok(self.0.await?)
    }
}
