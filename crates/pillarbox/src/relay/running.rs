//! A relay at work, from its entering as an owner to its leaving.

use std::{borrow::Cow, sync::Arc, time::Duration};

use crate::crash_point::crash_point;
use crate::relay::dispatch::deliverer::Deliverer;
use crate::relay::dispatch::pause::Pauses;
use crate::relay::engine::Engine;
use crate::relay::handle::AbortOnDrop;
use crate::relay::notify;
use crate::relay::ownership::Heartbeat;
use crate::relay::rows::RowEngine;
use crate::relay::stop::{Ended, StopSummary};
use crate::scheduler::Scheduler;
use crate::telemetry::{Component, RelayEvent};
use crate::wake::Wake;

/// What delivers, by the way that rows are claimed.
#[derive(Debug)]
pub(super) enum AnyEngine {
    Shards(Box<Engine>),
    Rows(Box<RowEngine>),
}

impl AnyEngine {
    pub(super) fn deliverer(&self) -> &Deliverer {
        match self {
            Self::Shards(engine) => &engine.deliverer,
            Self::Rows(engine) => &engine.deliverer,
        }
    }

    async fn run(self, stop: impl Future<Output = ()>) -> Ended {
        match self {
            Self::Shards(engine) => engine.run(stop).await,
            Self::Rows(engine) => engine.run(stop).await,
        }
    }
}

/// A relay that has entered as an owner.
#[derive(Debug)]
pub(super) struct Started {
    pub(super) heartbeat: Heartbeat,
    pub(super) maintenance: Scheduler,
    pub(super) engine: AnyEngine,
    pub(super) pauses: Arc<Pauses>,
    pub(super) wake: Wake,
    /// How long to wait for the shards to be given back.
    pub(super) patience: Duration,
}

impl Started {
    pub(super) async fn run_until(self, shutdown: impl Future<Output = ()>) -> StopSummary {
        let (wake, patience) = (self.wake, self.patience);
        let (store, ownership) =
            (Arc::clone(&self.heartbeat.store), Arc::clone(&self.heartbeat.ownership));
        let observers = self.heartbeat.observers.clone();
        let others = [
            AbortOnDrop(tokio::spawn(self.heartbeat.run())),
            AbortOnDrop(tokio::spawn(self.maintenance.run_until(std::future::pending()))),
            AbortOnDrop(tokio::spawn(notify::hear(Arc::clone(&store), wake.clone()))),
            AbortOnDrop(tokio::spawn(notify::look_again(wake.clone()))),
            AbortOnDrop(tokio::spawn(notify::ring(Arc::clone(&store), wake))),
        ];
        let ended = self.engine.run(shutdown).await;
        let summary = ended.summary(&*store).await;
        drop(others);
        let leaving = async {
            crash_point!("leave.before"?);
            let left = store.leave(&ownership.owner).await;
            crash_point!("leave.after"?);
            left
        };
        let left = tokio::time::timeout(patience, leaving).await;
        let (owner, shards) = (Cow::Borrowed(&ownership.owner), ownership.shards().len());
        observers.on_event(&match left {
            Ok(Ok(())) => RelayEvent::ShardsReleased { owner: owner.clone(), shards },
            Ok(Err(error)) => RelayEvent::failed(Component::Lease, &error),
            Err(_) => {
                RelayEvent::failed_with(Component::Lease, "shards are free when the lease ends")
            }
        });
        notify::ring_last(&*store).await;
        observers.on_event(&RelayEvent::Stopped { owner });
        summary
    }
}
