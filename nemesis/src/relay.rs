//! A relay as a process of its own: does what its orders say until it is told to end.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::layer::{ConcurrencyLimit, Layer};
use pillarbox::observe::Happening;
use pillarbox::{Cx, Failure, Listeners, Outbox, Relay, RelayHandle, Store};
use tokio::signal::unix::{SignalKind, signal};

use crate::bank::POISONED;
use crate::log::{Entry, Log};
use crate::orders::{Manner, Orders, Trouble};
use crate::place::attach;
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
    let log = Arc::new(Log::open(&orders.log, &orders.life)?);
    let (store, bank) = attach(&orders.url).await?;
    let (handle, outbox) = start(&store, &log, &orders).await?;
    let writing = async {
        if let Some(writing) = orders.writing {
            Writers::start(&bank, &outbox, writing).finish().await?;
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

/// A database that is too busy to let a relay in is asked again, as a supervisor would.
pub(crate) async fn start(
    store: &Arc<dyn Store>,
    log: &Arc<Log>,
    orders: &Orders,
) -> Result<(RelayHandle, Outbox)> {
    loop {
        let seen = Arc::clone(log);
        let mut relay = Relay::shared(Arc::clone(store), listeners(log, orders))
            .settings(orders.settings.clone())
            .observer(move |happening: &Happening<'_>| see(&seen, happening));
        if orders.trouble.is_limited() {
            relay = relay.layer(limit());
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
    if orders.url.contains("pooler=true") { outbox.pooler() } else { outbox }
}

/// Writes without a relay, then ends.
///
/// # Errors
/// What its writers fail with.
pub async fn write(orders: Orders) -> Result {
    let (_, bank) = attach(&orders.url).await?;
    let Some(writing) = orders.writing else { return Ok(()) };
    Writers::start(&bank, &pooled(Outbox::new(), &orders), writing).finish().await?;
    Ok(())
}

fn listeners(log: &Arc<Log>, orders: &Orders) -> Listeners {
    let (steps, glimpses) = (Arc::clone(log), Arc::clone(log));
    let (manner, trouble) = (orders.listener, orders.trouble);
    let on_step = move |step: Step, cx: Cx| {
        let log = Arc::clone(&steps);
        async move {
            if step.account == POISONED && trouble == Trouble::PoisonedKey {
                return Err(Failure::retry("poisoned"));
            }
            hear(&log, manner, &Entry::Step(cx.id().as_str(), step.account, step.n)).await
        }
    };
    let on_glimpse = move |it: Glimpse, cx: Cx| {
        let log = Arc::clone(&glimpses);
        async move { hear(&log, manner, &Entry::Glimpse(cx.id().as_str(), it.account, it.n)).await }
    };
    let on_trouble = move |_: crate::Trouble, _: Cx| make(trouble);
    Listeners::new().on(on_step).on(on_glimpse).on(on_trouble)
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

/// Only one of each route at a time that is not quick.
fn limit() -> impl Layer {
    ConcurrencyLimit::new(NonZeroU32::MIN)
}

async fn hear(log: &Log, manner: Manner, entry: &Entry<'_>) -> std::result::Result<(), Failure> {
    match manner {
        Manner::Plain => {}
        Manner::Slow(micros) => tokio::time::sleep(Duration::from_micros(micros)).await,
    }
    Ok(log.note(entry)?)
}

fn see(log: &Log, happening: &Happening<'_>) {
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let noted = match happening {
        Happening::Fenced { .. } => log.note(&Entry::Fenced),
        Happening::LeaseLost { .. } => log.note(&Entry::LeaseLost),
        Happening::Abandoned { unsettled } => log.note(&Entry::Abandoned(count(*unsettled))),
        Happening::Hot { events } => log.note(&Entry::Hot(count(*events))),
        Happening::ShardsTaken { shards, .. } => log.note(&Entry::Took(count(*shards))),
        _ => Ok(()),
    };
    if let Err(error) = noted {
        eprintln!("cannot write to the log: {error}");
    }
}
