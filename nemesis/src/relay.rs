//! A relay as a process of its own: does what its orders say until it is told to end.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::layer::{self, ConcurrencyLimit, Layer};
use pillarbox::telemetry::RelayEvent;
use pillarbox::{
    Backoff, Cx, Envelope, Failure, Inbox, Listeners, Outbox, Relay, RelayHandle, Store,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::bank::{Bank, POISONED};
use crate::log::{Entry, Log};
use crate::orders::{Load, Manner, Orders, Trouble, Writing};
use crate::place::{attach, healed};
use crate::transfer::{AGGREGATE, NOTICE, TRANSFER, Transfer};
use crate::writer::Writers;
use crate::{Glimpse, Result, Step};

/// How long to wait before a busy database is asked again.
const AGAIN: Duration = Duration::from_millis(100);

/// Delivers, and writes if it is told to, until SIGTERM.
///
/// # Errors
/// What the relay refuses at its start, and what its writers fail with.
pub async fn run(orders: Orders) -> Result {
    let mut end = signal(SignalKind::terminate())?;
    let log = log(&orders)?;
    let (store, bank) = attached(&orders.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &orders).await?;
    let writing = async {
        if let Some(writing) = orders.writing {
            writers(&bank, &outbox, writing, &log).finish().await?;
            log.note(&Entry::Wrote)?;
        }
        std::future::pending::<Result>().await
    };
    tokio::select! {
        _ = end.recv() => {}
        failed = writing => return failed,
    }
    handle.stop().await?;
    Ok(log.note(&Entry::Stopped)?)
}

fn log(orders: &Orders) -> Result<Arc<Log>> {
    Ok(Arc::new(Log::open(&orders.log, &orders.life)?.ahead(orders.ahead)))
}

fn writers(bank: &Bank, outbox: &Outbox, writing: Writing, log: &Arc<Log>) -> Writers {
    let writers = Writers::start(bank, outbox, writing);
    if writing.load == Load::Even { writers } else { writers.told_to(bank, Arc::clone(log)) }
}

/// A database that is out of reach is asked again, as a supervisor would.
///
/// # Errors
/// When it will not mend by itself.
pub async fn attached(url: &str) -> pillarbox::Result<(Arc<dyn Store>, Bank)> {
    loop {
        match attach(url).await {
            Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
            attached => return attached,
        }
    }
}

/// A database that is too busy to let a relay in is asked again, as a supervisor would.
pub(crate) async fn start(
    store: &Arc<dyn Store>,
    bank: &Bank,
    log: &Arc<Log>,
    orders: &Orders,
) -> Result<(RelayHandle, Outbox)> {
    let ear = Ear::new(log, bank, orders)?;
    loop {
        let seen = Arc::clone(log);
        let mut relay = Relay::new(Arc::clone(store), listeners(&ear, orders.trouble))
            .settings(orders.settings.clone())
            .retry(Backoff::new(2 * AGAIN, Duration::from_millis(orders.backoff)))
            .observer(move |relay_event: &RelayEvent<'_>| see(&seen, relay_event));
        if orders.trouble.is_limited() {
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

/// Where the store is behind a pooler, the writers are.
fn pooled(outbox: Outbox, orders: &Orders) -> Outbox {
    if is_pooled(orders) { outbox.pooler() } else { outbox }
}

fn is_pooled(orders: &Orders) -> bool {
    orders.url.contains("pooler=true")
}

/// Writes without a relay, then ends.
///
/// # Errors
/// What its writers fail with.
pub async fn write(orders: Orders) -> Result {
    let (_, bank) = attached(&orders.url).await?;
    let Some(writing) = orders.writing else { return Ok(()) };
    let outbox = pooled(Outbox::new(), &orders);
    writers(&bank, &outbox, writing, &log(&orders)?).finish().await?;
    Ok(())
}

/// What a listener does with an event before it is done.
#[derive(Clone, Debug)]
struct Ear {
    log: Arc<Log>,
    manner: Manner,
    bank: Bank,
    inbox: Inbox,
    healed: PathBuf,
}

impl Ear {
    fn new(log: &Arc<Log>, bank: &Bank, orders: &Orders) -> pillarbox::Result<Self> {
        let inbox = Inbox::new("nemesis")?;
        let inbox = if is_pooled(orders) { inbox.pooler() } else { inbox };
        let (log, bank) = (Arc::clone(log), bank.clone());
        Ok(Self { log, manner: orders.listener, bank, inbox, healed: healed(&orders.log) })
    }

    async fn hear(&self, entry: &Entry<'_>) -> std::result::Result<(), Failure> {
        self.take_time().await;
        if let Manner::Scripted { fails, .. } = self.manner {
            self.follow_script(entry, fails).await?;
        }
        Ok(self.log.note(entry)?)
    }

    async fn take_time(&self) {
        match self.manner {
            Manner::Plain => {}
            Manner::Slow(micros) => tokio::time::sleep(Duration::from_micros(micros)).await,
            Manner::Scripted { rest, .. } => tokio::time::sleep(Duration::from_millis(rest)).await,
        }
    }

    async fn follow_script(
        &self,
        entry: &Entry<'_>,
        fails: bool,
    ) -> std::result::Result<(), Failure> {
        let (Entry::Step { id, account, .. } | Entry::Glimpse { id, account, .. }) = *entry else {
            return Ok(());
        };
        let is_to_fail = matches!(entry, Entry::Glimpse { n, .. } if fails && n % 2 == 0);
        if is_to_fail && !self.healed.exists() {
            return Err(Failure::dead("fails by order"));
        }
        let booked = self.bank.book(&self.inbox, id, account, 0).await;
        booked.map_err(|error| Failure::defer(AGAIN, error))
    }

    /// Looks whether it came as it was emitted and not too early, has its effect, and notes it.
    async fn book(&self, envelope: &Envelope) -> std::result::Result<(), Failure> {
        let id = envelope.event_id().as_str();
        let Some(it) = Transfer::read(envelope) else {
            return Ok(self.log.note(&Entry::Damaged { id })?);
        };
        let Transfer { account, n, amount, .. } = it;
        let is_ordered = envelope.event_type().as_str() == TRANSFER;
        if !is_ordered && n % 31 == 5 && !self.healed.exists() {
            self.log.note(&Entry::Refused { id })?;
            return Err(Failure::dead("fails by order"));
        }
        self.take_time().await;
        // A database that is away is no fault of the event.
        self.look_at_clock(id, it.delay).await.map_err(|error| Failure::defer(AGAIN, error))?;
        let booked = self.bank.book(&self.inbox, id, account, amount).await;
        booked.map_err(|error| Failure::defer(AGAIN, error))?;
        let entry = if is_ordered {
            Entry::Step { id, account, n }
        } else {
            Entry::Glimpse { id, account, n }
        };
        Ok(self.log.note(&entry)?)
    }

    /// Both times are the database's; each is rounded to a millisecond.
    async fn look_at_clock(&self, id: &str, delay: u64) -> pillarbox::Result<()> {
        if delay == 0 {
            return Ok(());
        }
        let is_early = |age: i64| age + 2 < i64::try_from(delay).unwrap_or(0);
        if self.bank.age(id).await?.is_some_and(is_early)
            && let Err(error) = self.log.note(&Entry::Early { id })
        {
            eprintln!("cannot write to the log: {error}");
        }
        Ok(())
    }
}

fn listeners(ear: &Ear, trouble: Trouble) -> Listeners {
    let (steps, glimpses) = (ear.clone(), ear.clone());
    let on_step = move |step: Step, cx: Cx| {
        let ear = steps.clone();
        async move {
            if step.account == POISONED && trouble == Trouble::PoisonedKey {
                return Err(Failure::retry("poisoned"));
            }
            let (id, account, n) = (cx.id().as_str(), step.account, step.n);
            ear.hear(&Entry::Step { id, account, n }).await
        }
    };
    let on_glimpse = move |it: Glimpse, cx: Cx| {
        let ear = glimpses.clone();
        async move {
            let (id, account, n) = (cx.id().as_str(), it.account, it.n);
            ear.hear(&Entry::Glimpse { id, account, n }).await
        }
    };
    let on_trouble = move |_: crate::Trouble, _: Cx| make(trouble);
    let book = |ear: Ear| {
        move |envelope: Envelope, _: Cx| {
            let ear = ear.clone();
            async move { ear.book(&envelope).await }
        }
    };
    Listeners::new()
        .on(on_step)
        .on(on_glimpse)
        .on(on_trouble)
        .on_type(AGGREGATE, TRANSFER, book(ear.clone()))
        .on_type(AGGREGATE, NOTICE, book(ear.clone()))
}

/// Long beside a delivery, short beside its timeout.
const LONG: Duration = Duration::from_millis(200);

async fn make(trouble: Trouble) -> std::result::Result<(), Failure> {
    match trouble {
        Trouble::None | Trouble::PoisonedKey => {}
        Trouble::SlowRoute | Trouble::SlowRouteLimited => tokio::time::sleep(LONG).await,
        Trouble::Panics => panic!("a listener panics on demand"),
        Trouble::Blocks => std::thread::sleep(LONG),
    }
    Ok(())
}

/// Only one trouble at a time.
fn limit() -> Result<impl Layer> {
    Ok(layer::only("nemesis.trouble", ConcurrencyLimit::new(NonZeroU32::MIN))?)
}

fn see(log: &Log, relay_event: &RelayEvent<'_>) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let noted = match relay_event {
        RelayEvent::Fenced { event_id } => log.note(&Entry::Fenced { id: event_id }),
        RelayEvent::LeaseLost { .. } => log.note(&Entry::LeaseLost),
        RelayEvent::Abandoned { unsettled } => {
            log.note(&Entry::Abandoned { events: count(*unsettled) })
        }
        RelayEvent::FromLocalQueue { events } => log.note(&Entry::Hot { events: count(*events) }),
        RelayEvent::ShardsTaken { shards, .. } => log.note(&Entry::Took { shards: count(*shards) }),
        _ => Ok(()),
    };
    if let Err(error) = noted {
        eprintln!("cannot write to the log: {error}");
    }
}
