//! The story of one delivery: from the row to what its listener made of it.

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tracing::warn;

use crate::clock::{Clock, Deadline};
use crate::context::{self, Context};
use crate::crash_point::crash_point;
use crate::envelope::Envelope;
use crate::id::{Epoch, ShardId};
use crate::layer::{self, DeliveryFuture, Endpoint, Layers};
use crate::listener::{Cx, ErasedListener, Listeners};
use crate::relay::dispatch::pause::Pauses;
use crate::relay::fetch::row_lease::RowLeaseGuard;
use crate::relay::ownership::Ownership;
use crate::relay::settings::Settings;
use crate::store::Content;
use crate::verdict::{ErrorText, Failed, Failure};

/// Calls listeners through the layers; never touches the store.
#[derive(Debug)]
pub(crate) struct Deliverer {
    pub(crate) listeners: Listeners,
    pub(crate) layers: Layers,
    pub(crate) pauses: Arc<Pauses>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) timeout: Duration,
    pub(crate) margin: Duration,
}

/// How a delivery ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The listener was called, or the event can have none.
    Judgeable(Result<(), Failed>),
    /// The lease ran out first, or is given back: it is not ours to deliver.
    TooLate,
}

impl Outcome {
    /// Whether the listener was called, and had nothing to say against the event.
    pub(crate) const fn is_well(&self) -> bool {
        matches!(self, Self::Judgeable(Ok(())))
    }

    /// Of one that was counted before it was to begin: where it did not, and nobody can have died of
    /// it, that is to be written, or the count would stay.
    pub(crate) fn of_suspect(self) -> Self {
        match self {
            Self::TooLate => {
                let why = "counted as a suspect and not begun under this lease";
                Self::Judgeable(Err(Failure::defer(Duration::ZERO, why).into()))
            }
            judgeable @ Self::Judgeable(_) => judgeable,
        }
    }
}

/// The lease that a delivery happens under.
#[derive(Clone, Debug)]
pub(crate) enum LeaseKind {
    /// The relay's, on the event's shard, at this epoch.
    Shard(ShardId, Epoch),
    /// The writer's, on the row itself, until then.
    Row(Deadline),
    /// The relay's, on the row itself, renewed for as long as it is in hand.
    Claim(Arc<RowLeaseGuard>),
}

impl Deliverer {
    /// One that calls these listeners, for as long as the settings allow.
    pub(crate) fn new(
        listeners: Listeners,
        layers: Layers,
        clock: Arc<dyn Clock>,
        ownership: Arc<Ownership>,
        settings: &Settings,
    ) -> Self {
        let (timeout, margin) = (settings.delivery_timeout, settings.margin);
        let listeners = listeners.unroutable(settings.unroutable);
        Self { listeners, layers, pauses: Arc::default(), clock, ownership, timeout, margin }
    }

    /// Whether a delivery may start now; asked right before the listener is called.
    fn may_start(&self, lease: &LeaseKind) -> bool {
        match lease {
            // At another epoch somebody else had it meanwhile, and has gone on with its keys.
            LeaseKind::Shard(shard, epoch) => {
                self.ownership.holds(&*self.clock, *shard, self.margin) == Some(*epoch)
            }
            // Nobody prolongs the lease of a row: it must last for the whole delivery.
            LeaseKind::Row(deadline) => {
                !deadline.has_passed(&*self.clock, self.timeout + self.margin)
            }
            LeaseKind::Claim(row) => self.is_live() && row.is_live(&*self.clock, self.margin),
        }
    }

    /// Whether there is a lease to deliver under.
    pub(crate) fn is_live(&self) -> bool {
        self.ownership.is_live(&*self.clock, self.margin)
    }

    /// # Cancel safety
    /// Dropped half-way, the event is not settled and will be delivered again.
    pub(crate) async fn deliver(
        self: &Arc<Self>,
        lease: LeaseKind,
        attempts: u32,
        content: Content,
    ) -> Outcome {
        let envelope = match content {
            Content::Event(envelope) => envelope,
            Content::Invalid(bad) => {
                return Outcome::Judgeable(Err(Failure::dead(bad.cause).into()));
            }
            // There is nothing to deliver yet: a later read brings it.
            Content::Unread { .. } => return Outcome::TooLate,
        };
        if let Err(paused) = self.pauses.check(&envelope) {
            return Outcome::Judgeable(Err(paused.into()));
        }
        let call = self.call(lease, envelope, attempts.saturating_add(1));
        let outcome = self.run(&call).await;
        // Here, where a panic is a failed delivery: the text of an error is a stranger's code.
        call.end(outcome)
    }

    fn call(self: &Arc<Self>, lease: LeaseKind, envelope: Envelope, attempt: u32) -> Arc<Call> {
        let route = self.listeners.route(&envelope).clone();
        Arc::new(Call {
            deliverer: Arc::clone(self),
            lease,
            listener: route.listener,
            cx: Cx::new(envelope, attempt, route.name),
            stage: Mutex::default(),
        })
    }

    async fn run(&self, call: &Arc<Call>) -> layer::Outcome {
        let endpoint: Arc<dyn Endpoint> = call.clone();
        let delivery = self.layers.deliver(&call.cx, endpoint);
        let delivery = context::scope(Context::of(call.cx.envelope()), delivery);
        let ended = tokio::time::timeout(self.timeout, delivery).await;
        ended.unwrap_or_else(|_| Err(call.too_slow()))
    }
}

/// A listener about to be called, behind all layers.
struct Call {
    deliverer: Arc<Deliverer>,
    lease: LeaseKind,
    listener: Arc<dyn ErasedListener>,
    cx: Cx,
    stage: Mutex<Stage>,
}

/// How far a delivery has come.
#[derive(Default)]
enum Stage {
    /// The listener was not called yet.
    #[default]
    Layers,
    /// The lease was too short to call it.
    TooLate,
    /// It was called.
    Listener,
    /// It has answered.
    Over(Result<(), Failed>),
}

impl Endpoint for Call {
    fn call(self: Arc<Self>) -> DeliveryFuture<'static> {
        Box::pin(async move {
            // Last of all: the layers may have waited for longer than the lease.
            if !self.deliverer.may_start(&self.lease) {
                *self.stage() = Stage::TooLate;
                return Err(Failure::defer(Duration::ZERO, "the lease is too short to deliver"));
            }
            *self.stage() = Stage::Listener;
            crash_point!("deliver.before"?);
            let outcome =
                self.listener.call(self.cx.clone(), self.deliverer.listeners.rules()).await;
            crash_point!("deliver.after"?);
            let heard = outcome.as_ref().copied().map_err(failed);
            *self.stage() = Stage::Over(heard);
            outcome
        })
    }
}

impl Call {
    /// What the listener said stands; without it, what the layers say.
    fn end(&self, outcome: layer::Outcome) -> Outcome {
        let stage = mem::take(&mut *self.stage());
        Outcome::Judgeable(match (stage, outcome) {
            (Stage::TooLate, _) => return Outcome::TooLate,
            (Stage::Over(heard), outcome) => {
                self.tell_if_changed(&heard, &outcome);
                heard
            }
            (Stage::Listener, Ok(())) => {
                Err(Failure::retry("a layer gave up on the listener and said nothing").into())
            }
            (Stage::Layers | Stage::Listener, outcome) => outcome.map_err(Into::into),
        })
    }

    fn tell_if_changed(&self, heard: &Result<(), Failed>, outcome: &layer::Outcome) {
        let event_id = self.cx.id();
        match (heard, outcome) {
            (Ok(()), Err(failure)) => {
                warn!(%event_id, error = %failure, "a layer failed after the listener, which counts");
            }
            (Err(_), Ok(())) => {
                warn!(%event_id, "a layer hid the failure of the listener, which counts");
            }
            (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
        }
    }

    fn too_slow(&self) -> Failure {
        let who = if matches!(*self.stage(), Stage::Layers) { "layers" } else { "listener" };
        Failure::retry(format!("the {who} took longer than {:?}", self.deliverer.timeout))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(failure: &Failure) -> Failed {
    Failed { next: failure.next(), error: ErrorText::new(&failure.to_string()) }
}
