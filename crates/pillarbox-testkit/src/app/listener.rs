//! A listener that records its calls, and fails when it is told to.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use pillarbox::{Cx, Envelope, Event, Failure, Listener, Next};

use super::decode;

/// Records its calls, and refuses events when it is told to.
///
/// It listens to any event: say which when it is registered, `.on::<OrderPlaced>(mail.clone())`,
/// or register it for a pattern or as the fallback. Clones share their calls.
///
/// # Examples
/// ```
/// use pillarbox::{Event, Listeners};
/// use pillarbox_testkit::{RecordingListener, Refusal};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed")]
/// struct OrderPlaced { order_id: i64 }
///
/// let mail = RecordingListener::new();
/// mail.refuse(Refusal::retry("the mail server is away").times(2));
/// mail.refuse(Refusal::dead("no such address").when(|order: &OrderPlaced| order.order_id == 13));
///
/// let listeners = Listeners::new().on::<OrderPlaced>(mail.clone());
/// # assert_eq!(listeners.len(), 1);
/// assert!(mail.received::<OrderPlaced>().is_empty());
/// ```
#[derive(Clone, Debug, Default)]
pub struct RecordingListener(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    calls: Vec<RecordedCall>,
    refusals: Vec<Refusal>,
}

/// One call of a [`RecordingListener`].
#[derive(Clone, Debug)]
pub struct RecordedCall {
    /// The event.
    pub envelope: Envelope,
    /// Which attempt it was, from 1.
    pub attempt: u32,
    /// The error of the listener; `None` when it accepted the event.
    pub refused: Option<String>,
}

impl RecordingListener {
    /// Creates a listener without calls that accepts every event.
    pub fn new() -> Self {
        Self::default()
    }

    /// Refuses what comes next and fits; the first refusal that fits counts.
    pub fn refuse(&self, refusal: Refusal) {
        self.0.lock().unwrap().refusals.push(refusal);
    }

    /// The accepted events of this type, in order.
    ///
    /// # Panics
    /// When one does not decode.
    #[track_caller]
    pub fn received<E: Event>(&self) -> Vec<E> {
        let mut events = Vec::new();
        for call in self.calls().iter().filter(|call| call.refused.is_none()) {
            events.extend(decode(&call.envelope));
        }
        events
    }

    /// Every call, refused ones too, in order.
    pub fn calls(&self) -> Vec<RecordedCall> {
        self.0.lock().unwrap().calls.clone()
    }

    fn record(&self, cx: &Cx) -> Result<(), Failure> {
        let mut record = self.0.lock().unwrap();
        let refusal = record.refusals.iter_mut().find(|refusal| refusal.fits(cx.envelope()));
        let failure = refusal.map(Refusal::spend);
        record.calls.push(RecordedCall {
            envelope: cx.envelope().clone(),
            attempt: cx.attempt(),
            refused: failure.as_ref().map(Failure::to_string),
        });
        failure.map_or(Ok(()), Err)
    }
}

impl<E: Send + 'static> Listener<E> for RecordingListener {
    async fn on_event(&self, _: E, cx: Cx) -> Result<(), Failure> {
        self.record(&cx)
    }
}

/// What a [`RecordingListener`] refuses, and how: once, and any event, unless said.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox_testkit::Refusal;
///
/// let closed = Refusal::defer(Duration::from_secs(3600), "the bank is closed").times(3);
/// # let _ = closed;
/// ```
#[derive(Clone)]
pub struct Refusal {
    next: Next,
    cause: String,
    left: u32,
    fits: Arc<dyn Fn(&Envelope) -> bool + Send + Sync>,
}

impl Refusal {
    /// The delivery failed: try again with backoff.
    pub fn retry(cause: impl Into<String>) -> Self {
        Self::new(Next::Retry, cause)
    }

    /// The delivery failed: try again after `delay`.
    pub fn retry_after(delay: Duration, cause: impl Into<String>) -> Self {
        Self::new(Next::RetryAfter(delay), cause)
    }

    /// Not now: come again after `delay`. No attempt is counted.
    pub fn defer(delay: Duration, cause: impl Into<String>) -> Self {
        Self::new(Next::Defer(delay), cause)
    }

    /// Gives the event up: no retry can succeed.
    pub fn dead(cause: impl Into<String>) -> Self {
        Self::new(Next::Dead, cause)
    }

    /// So many times.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.left = times;
        self
    }

    /// Every time.
    #[must_use]
    pub fn always(self) -> Self {
        self.times(u32::MAX)
    }

    /// Only events of this type for which `fits` is true.
    #[must_use]
    pub fn when<E: Event>(mut self, fits: impl Fn(&E) -> bool + Send + Sync + 'static) -> Self {
        self.fits = Arc::new(move |envelope| decode(envelope).is_some_and(|event| fits(&event)));
        self
    }

    fn new(next: Next, cause: impl Into<String>) -> Self {
        Self { next, cause: cause.into(), left: 1, fits: Arc::new(|_| true) }
    }

    fn fits(&self, envelope: &Envelope) -> bool {
        self.left > 0 && (self.fits)(envelope)
    }

    fn spend(&mut self) -> Failure {
        if self.left < u32::MAX {
            self.left -= 1;
        }
        let cause = self.cause.clone();
        match self.next {
            Next::Retry => Failure::retry(cause),
            Next::RetryAfter(delay) => Failure::retry_after(delay, cause),
            Next::Defer(delay) => Failure::defer(delay, cause),
            Next::Dead => Failure::dead(cause),
        }
    }
}

impl fmt::Debug for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refusal")
            .field("next", &self.next)
            .field("cause", &self.cause)
            .field("left", &self.left)
            .finish_non_exhaustive()
    }
}
