//! Relays of one process that drain a backlog when they are told to.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Cx, Envelope, Failure, Listeners, Relay, RelayHandle, RelaySettings, Store};
use tokio::time::sleep;

use crate::{
    Result,
    baseline::{Database, Prefix, SettleMode},
    event::OrderPlaced,
    measure::now,
};

/// A drain that takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(300);

/// What the listener does.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Listen {
    /// Nothing but to count.
    Count,
    /// Reads the payload and notes its number, as long as that is at most this one.
    Read(u32),
}

/// Relays that have shared the shards, and look at the table when they are told to.
pub(crate) struct Relays {
    prefix: Prefix,
    heard: Arc<Heard>,
    handles: Vec<RelayHandle>,
}

impl Relays {
    pub(crate) async fn start<D: Database>(
        database: &D,
        prefix: Prefix,
        count: usize,
        mode: SettleMode,
        listen: Listen,
    ) -> Result<Self> {
        let store = database.store(prefix)?;
        let heard = Arc::new(Heard::new(listen));
        let mut handles = Vec::new();
        for _ in 0..count {
            handles.push(start(&store, &heard, mode).await?);
        }
        let begun = now();
        while !is_shared(&store, count).await? {
            if begun.elapsed() > PATIENCE {
                return Err("the relays do not share the shards".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { prefix, heard, handles })
    }

    /// From the wake to the last settle.
    pub(crate) async fn drain<D: Database>(&self, database: &D, backlog: u64) -> Result<u64> {
        let begun = now();
        self.heard.forget();
        self.handles.iter().for_each(RelayHandle::wake);
        while self.heard.count() < backlog || database.count(self.prefix, 0).await? > 0 {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} events heard", self.heard.count()).into());
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.heard.each_once(backlog)
    }

    pub(crate) async fn stop(self) -> Result {
        for handle in self.handles {
            handle.stop().await?;
        }
        Ok(())
    }
}

/// What the listeners of all relays have heard.
struct Heard {
    count: AtomicU64,
    distinct: AtomicU64,
    /// By number; none when numbers are not noted.
    numbers: Vec<AtomicBool>,
}

impl Heard {
    fn new(listen: Listen) -> Self {
        let numbers = match listen {
            Listen::Count => 0,
            Listen::Read(most) => most + 1,
        };
        let numbers = (0..numbers).map(|_| AtomicBool::new(false)).collect();
        Self { count: AtomicU64::new(0), distinct: AtomicU64::new(0), numbers }
    }

    fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    fn forget(&self) {
        self.count.store(0, Ordering::Relaxed);
        self.distinct.store(0, Ordering::Relaxed);
        self.numbers.iter().for_each(|number| number.store(false, Ordering::Relaxed));
    }

    fn hear(&self, order: &OrderPlaced) {
        let number = usize::try_from(order.order_id).ok();
        let place = number.and_then(|number| self.numbers.get(number));
        if place.is_some_and(|place| !place.swap(true, Ordering::Relaxed)) {
            self.distinct.fetch_add(1, Ordering::Relaxed);
        }
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// How many were heard, if that was each of the backlog once.
    fn each_once(&self, backlog: u64) -> Result<u64> {
        let (count, distinct) = (self.count(), self.distinct.load(Ordering::Relaxed));
        let is_noted = !self.numbers.is_empty();
        if count != backlog || (is_noted && distinct != backlog) {
            return Err(
                format!("of {backlog} events {count} heard, {distinct} of them once").into()
            );
        }
        Ok(count)
    }
}

/// Whether every shard is held, and nobody has more than one above its share.
async fn is_shared(store: &Arc<dyn Store>, relays: usize) -> Result<bool> {
    let shards = usize::from(store.config().await?.shards.get());
    let held: Vec<usize> =
        store.members().await?.iter().map(|member| usize::from(member.owned)).collect();
    let share = shards.div_ceil(relays);
    Ok(held.iter().sum::<usize>() == shards && held.iter().all(|held| *held <= share))
}

async fn start(
    store: &Arc<dyn Store>,
    heard: &Arc<Heard>,
    mode: SettleMode,
) -> Result<RelayHandle> {
    let hour = Duration::from_secs(3600);
    // Rows that are done beforehand stay, although those of the relay are not kept.
    let never = Duration::from_secs(365 * 24 * 3600);
    let mut settings =
        RelaySettings { poll: hour, sweep: hour, purge_every: never, ..RelaySettings::default() };
    if mode == SettleMode::Delete {
        settings.retention_done = Duration::ZERO;
    }
    let relay = Relay::new(Arc::clone(store), listeners(heard)).settings(settings);
    Ok(relay.spawn().await?)
}

fn listeners(heard: &Arc<Heard>) -> Listeners {
    let heard = Arc::clone(heard);
    if heard.numbers.is_empty() {
        return Listeners::new().fallback(move |_: Envelope, _: Cx| {
            heard.count.fetch_add(1, Ordering::Relaxed);
            async { Ok::<(), Failure>(()) }
        });
    }
    Listeners::new().on::<OrderPlaced>(move |order: OrderPlaced, _: Cx| {
        heard.hear(&order);
        async { Ok::<(), Failure>(()) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_heard_twice_is_not_each_once() {
        let heard = Heard::new(Listen::Read(2));

        heard.hear(&OrderPlaced::new(1));
        heard.hear(&OrderPlaced::new(1));

        assert!(heard.each_once(2).is_err());
        heard.forget();
        heard.hear(&OrderPlaced::new(1));
        heard.hear(&OrderPlaced::new(2));
        assert_eq!(heard.each_once(2).unwrap(), 2);
    }
}
