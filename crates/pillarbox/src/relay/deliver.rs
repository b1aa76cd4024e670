//! The story of one delivery: from the row to what its listener made of it.

use std::{sync::Arc, time::Duration};

use crate::clock::Clock;
use crate::context::{self, Context};
use crate::envelope::{BadRow, Envelope};
use crate::id::ShardId;
use crate::listen::{AnyListener, Cx, Listeners};
use crate::verdict::{Failed, Failure};

use super::lease::Tenure;

/// Calls listeners; never touches the store.
#[derive(Debug)]
pub(super) struct Courier {
    pub(super) listeners: Listeners,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) timeout: Duration,
    pub(super) margin: Duration,
}

/// How a delivery ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The listener was called, or the event can have none.
    Judgeable(Result<(), Failed>),
    /// The lease ran out first: it is not ours to deliver.
    TooLate,
}

impl Courier {
    /// Whether there is a lease to deliver under.
    pub(super) fn is_live(&self) -> bool {
        self.tenure.is_live(&*self.clock, self.margin)
    }

    /// # Cancel safety
    /// Dropped half-way, the event is not settled and will be delivered again.
    pub(super) async fn deliver(
        &self,
        shard: ShardId,
        attempts: u32,
        event: Result<Envelope, BadRow>,
    ) -> Outcome {
        let envelope = match event {
            Ok(envelope) => Arc::new(envelope),
            Err(bad) => return Outcome::Judgeable(Err(Failure::dead(bad.cause).into())),
        };
        let Some(listener) = self.listeners.route(&envelope) else {
            return Outcome::Judgeable(Err(unroutable(&envelope).into()));
        };
        if !self.tenure.may_start(&*self.clock, shard, self.margin) {
            return Outcome::TooLate;
        }
        let outcome = self.call(&*listener, envelope, attempts.saturating_add(1)).await;
        // Here, where a panic is a failed delivery: the text of an error is a stranger's code.
        Outcome::Judgeable(outcome.map_err(Into::into))
    }

    async fn call(
        &self,
        listener: &dyn AnyListener,
        envelope: Arc<Envelope>,
        attempt: u32,
    ) -> Result<(), Failure> {
        let context = Context::of(&envelope);
        let hearing = context::scope(context, listener.hear(Cx::new(envelope, attempt)));
        tokio::time::timeout(self.timeout, hearing).await.unwrap_or_else(|_| {
            Err(Failure::retry(format!("the listener took longer than {:?}", self.timeout)))
        })
    }
}

fn unroutable(envelope: &Envelope) -> Failure {
    let (aggregate, event) = (envelope.aggregate_type(), envelope.event_type());
    Failure::dead(format!("no listener for {aggregate}/{event}"))
}
