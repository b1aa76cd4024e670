//! The relay process: runs as configured until SIGTERM.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::layer::{self, ConcurrencyLimit, Layer};
use pillarbox::store::ClaimMode;
use pillarbox::telemetry::RelayEvent;
use pillarbox::{
    Backoff, Cx, Envelope, Failure, Inbox, Listeners, Outbox, Relay, RelayHandle, Store,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::bank::{Bank, POISONED_ACCOUNT};
use crate::config::{Disturbance, ListenerBehavior, Load, ProcessConfig, WriteLoad};
use crate::deployment::{attach, healed};
use crate::log::{Entry, Log};
use crate::transfer::{AGGREGATE, NOTICE, TRANSFER, Transfer};
use crate::writer::Writers;
use crate::{OrderedEvent, Result, UnorderedEvent};

/// How long to wait before a transient error is retried.
const AGAIN: Duration = Duration::from_millis(100);

/// Relays, and writes if configured, until SIGTERM.
///
/// # Errors
/// When the relay does not start, or a writer fails.
pub async fn run(config: ProcessConfig) -> Result {
    let mut end = signal(SignalKind::terminate())?;
    let log = log(&config)?;
    let (store, bank) = attached(&config.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &config).await?;
    let writes = async {
        if let Some(writes) = config.writes {
            writers(&bank, &outbox, writes, &log).finish().await?;
            log.append(&Entry::WritesFinished)?;
        }
        std::future::pending::<Result>().await
    };
    tokio::select! {
        _ = end.recv() => {}
        failed = writes => return failed,
    }
    handle.stop().await?;
    Ok(log.append(&Entry::Stopped)?)
}

fn log(config: &ProcessConfig) -> Result<Arc<Log>> {
    Ok(Arc::new(Log::open(&config.log, &config.incarnation)?.ahead(config.ahead)))
}

fn writers(bank: &Bank, outbox: &Outbox, writes: WriteLoad, log: &Arc<Log>) -> Writers {
    let writers = Writers::start(bank, outbox, writes);
    if writes.load == Load::Even { writers } else { writers.told_to(bank, Arc::clone(log)) }
}

/// Connects, and retries transient errors.
///
/// # Errors
/// When the error is permanent.
pub async fn attached(url: &str) -> pillarbox::Result<(Arc<dyn Store>, Bank)> {
    loop {
        match attach(url).await {
            Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
            attached => return attached,
        }
    }
}

/// The store of a relay or operator, with crash points around its calls.
#[cfg(feature = "crash-points")]
pub(crate) fn with_crash_points(store: &Arc<dyn Store>, claim: ClaimMode) -> Arc<dyn Store> {
    Arc::new(crate::crashing_store::CrashingStore::new(Arc::clone(store), claim))
}

#[cfg(not(feature = "crash-points"))]
pub(crate) fn with_crash_points(store: &Arc<dyn Store>, _: ClaimMode) -> Arc<dyn Store> {
    Arc::clone(store)
}

/// Starts a relay, and retries transient errors.
pub(crate) async fn start(
    store: &Arc<dyn Store>,
    bank: &Bank,
    log: &Arc<Log>,
    config: &ProcessConfig,
) -> Result<(RelayHandle, Outbox)> {
    let recorder = RecordingListener::new(log, bank, config)?;
    loop {
        let seen = Arc::clone(log);
        let store = with_crash_points(store, config.settings.claim);
        let mut relay = Relay::new(store, listeners(&recorder, config.disturbance))
            .settings(config.settings.clone())
            .retry(Backoff::new(2 * AGAIN, Duration::from_millis(config.backoff)))
            .observer(move |relay_event: &RelayEvent<'_>| log_relay_event(&seen, relay_event));
        if config.disturbance.is_limited() {
            relay = relay.layer(limit()?);
        }
        let outbox = relay.outbox();
        match relay.spawn().await {
            Ok(handle) => return Ok((handle, outbox)),
            Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// An outbox that is behind a pooler if the store is.
fn pooled(outbox: Outbox, config: &ProcessConfig) -> Outbox {
    if is_pooled(config) { outbox.pooler() } else { outbox }
}

fn is_pooled(config: &ProcessConfig) -> bool {
    config.url.contains("pooler=true")
}

/// Writes without a relay.
///
/// # Errors
/// When a writer fails.
pub async fn write(config: ProcessConfig) -> Result {
    let (_, bank) = attached(&config.url).await?;
    let Some(writes) = config.writes else { return Ok(()) };
    let outbox = pooled(Outbox::new(), &config);
    writers(&bank, &outbox, writes, &log(&config)?).finish().await?;
    Ok(())
}

/// A listener that logs each delivery.
#[derive(Clone, Debug)]
struct RecordingListener {
    log: Arc<Log>,
    manner: ListenerBehavior,
    bank: Bank,
    inbox: Inbox,
    healed: PathBuf,
}

impl RecordingListener {
    fn new(log: &Arc<Log>, bank: &Bank, config: &ProcessConfig) -> pillarbox::Result<Self> {
        let inbox = Inbox::new("nemesis")?;
        let inbox = if is_pooled(config) { inbox.pooler() } else { inbox };
        let (log, bank) = (Arc::clone(log), bank.clone());
        Ok(Self { log, manner: config.listener, bank, inbox, healed: healed(&config.log) })
    }

    async fn record(&self, entry: &Entry<'_>) -> std::result::Result<(), Failure> {
        self.sleep().await;
        if let ListenerBehavior::Effect { fails, .. } = self.manner {
            self.apply_effect(entry, fails).await?;
        }
        Ok(self.log.append(entry)?)
    }

    async fn sleep(&self) {
        match self.manner {
            ListenerBehavior::Plain => {}
            ListenerBehavior::Slow(micros) => {
                tokio::time::sleep(Duration::from_micros(micros)).await
            }
            ListenerBehavior::Effect { rest, .. } => {
                tokio::time::sleep(Duration::from_millis(rest)).await
            }
        }
    }

    async fn apply_effect(
        &self,
        entry: &Entry<'_>,
        fails: bool,
    ) -> std::result::Result<(), Failure> {
        let (Entry::Ordered { id, account, .. } | Entry::Unordered { id, account, .. }) = *entry
        else {
            return Ok(());
        };
        let must_fail = matches!(entry, Entry::Unordered { n, .. } if fails && n % 2 == 0);
        if must_fail && !self.healed.exists() {
            return Err(Failure::dead("fails as configured"));
        }
        let applied = self.bank.apply(&self.inbox, id, account, 0).await;
        applied.map_err(|error| Failure::defer(AGAIN, error))
    }

    /// Checks that the event is intact and due, applies its effect, and logs it.
    async fn deliver_transfer(&self, envelope: &Envelope) -> std::result::Result<(), Failure> {
        let id = envelope.event_id().as_str();
        let Some(it) = Transfer::read(envelope) else {
            return Ok(self.log.append(&Entry::Damaged { id })?);
        };
        let Transfer { account, n, amount, .. } = it;
        let is_ordered = envelope.event_type().as_str() == TRANSFER;
        if !is_ordered && n % 31 == 5 && !self.healed.exists() {
            self.log.append(&Entry::Refused { id })?;
            return Err(Failure::dead("fails as configured"));
        }
        self.sleep().await;
        // An unavailable database is not the fault of the event.
        self.check_due(id, it.delay).await.map_err(|error| Failure::defer(AGAIN, error))?;
        let applied = self.bank.apply(&self.inbox, id, account, amount).await;
        applied.map_err(|error| Failure::defer(AGAIN, error))?;
        let entry = if is_ordered {
            Entry::Ordered { id, account, n }
        } else {
            Entry::Unordered { id, account, n }
        };
        Ok(self.log.append(&entry)?)
    }

    /// Both times are the database's, rounded to a millisecond.
    async fn check_due(&self, id: &str, delay: u64) -> pillarbox::Result<()> {
        if delay == 0 {
            return Ok(());
        }
        let is_early = |age: i64| age + 2 < i64::try_from(delay).unwrap_or(0);
        if self.bank.age(id).await?.is_some_and(is_early)
            && let Err(error) = self.log.append(&Entry::Early { id })
        {
            eprintln!("cannot write to the log: {error}");
        }
        Ok(())
    }
}

fn listeners(recorder: &RecordingListener, disturbance: Disturbance) -> Listeners {
    let (ordered, unordered) = (recorder.clone(), recorder.clone());
    let on_step = move |step: OrderedEvent, cx: Cx| {
        let recorder = ordered.clone();
        async move {
            if step.account == POISONED_ACCOUNT && disturbance == Disturbance::PoisonedKey {
                return Err(Failure::retry("poisoned"));
            }
            let (id, account, n) = (cx.id().as_str(), step.account, step.n);
            recorder.record(&Entry::Ordered { id, account, n }).await
        }
    };
    let on_glimpse = move |it: UnorderedEvent, cx: Cx| {
        let recorder = unordered.clone();
        async move {
            let (id, account, n) = (cx.id().as_str(), it.account, it.n);
            recorder.record(&Entry::Unordered { id, account, n }).await
        }
    };
    let on_disturbance = move |_: crate::DisturbanceEvent, _: Cx| disturb(disturbance);
    let on_transfer = |recorder: RecordingListener| {
        move |envelope: Envelope, _: Cx| {
            let recorder = recorder.clone();
            async move { recorder.deliver_transfer(&envelope).await }
        }
    };
    Listeners::new()
        .on(on_step)
        .on(on_glimpse)
        .on(on_disturbance)
        .on_type(AGGREGATE, TRANSFER, on_transfer(recorder.clone()))
        .on_type(AGGREGATE, NOTICE, on_transfer(recorder.clone()))
}

/// Long compared with a delivery, short compared with its timeout.
const LONG: Duration = Duration::from_millis(200);

async fn disturb(disturbance: Disturbance) -> std::result::Result<(), Failure> {
    match disturbance {
        Disturbance::None | Disturbance::PoisonedKey => {}
        Disturbance::SlowRoute | Disturbance::SlowRouteLimited => tokio::time::sleep(LONG).await,
        Disturbance::Panics => panic!("a listener panics on demand"),
        Disturbance::Blocks => std::thread::sleep(LONG),
    }
    Ok(())
}

/// Limits the disturbing route to one delivery at a time.
fn limit() -> Result<impl Layer> {
    Ok(layer::only("nemesis.disturbance", ConcurrencyLimit::new(NonZeroU32::MIN))?)
}

fn log_relay_event(log: &Log, relay_event: &RelayEvent<'_>) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let noted = match relay_event {
        RelayEvent::Fenced { event_id } => log.append(&Entry::Fenced { id: event_id }),
        RelayEvent::LeaseLost { .. } => log.append(&Entry::LeaseLost),
        RelayEvent::Abandoned { unsettled } => {
            log.append(&Entry::Abandoned { events: count(*unsettled) })
        }
        RelayEvent::FromLocalQueue { events } => {
            log.append(&Entry::FromLocalQueue { events: count(*events) })
        }
        RelayEvent::ShardsTaken { shards, .. } => {
            log.append(&Entry::ShardsAcquired { shards: count(*shards) })
        }
        _ => Ok(()),
    };
    if let Err(error) = noted {
        eprintln!("cannot write to the log: {error}");
    }
}
