//! The numbers an operator may turn.

mod preset;
#[cfg(test)]
mod tests;

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::error::{Error, ErrorKind, Result};
use crate::listener::Unroutable;
use crate::retry::OnDead;
use crate::store::{ClaimMode, Order};

/// The numbers of a relay. In files, durations are whole milliseconds: `lease_ms = 15000`.
///
/// The defaults suit any number of processes. [`one_process`](Self::one_process) and
/// [`many_processes`](Self::many_processes) know more, and say what they trade.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::RelaySettings;
///
/// let settings = RelaySettings { poll: Duration::from_millis(100), ..Default::default() };
/// # assert_eq!(settings.lease, Duration::from_secs(15));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How this relay comes by rows: `shards`, or `rows` for slow, uneven listeners.
    ///
    /// The same for all relays of the tables: the first one to work on them sets it for good, and
    /// one with another setting does not start. `Store::configure` changes it later, while no relay
    /// runs. With `none` a relay does not start at all: another program reads the tables. Defaults
    /// to `shards`.
    pub claim: ClaimMode,
    /// What is delivered in order: each `key`, or `none`.
    ///
    /// Say `none` where no listener minds which event comes first; it needs `claim = rows`. As
    /// `claim`, it is the same for all relays of the tables. Defaults to `key`.
    pub order: Order,
    /// How long this relay's shards stay its own without a sign of life.
    ///
    /// Lower it to recover faster from a crash; it must be at least `delivery_timeout` + `margin`.
    /// Defaults to 15 seconds.
    #[serde(rename = "lease_ms", with = "millis")]
    pub lease: Duration,
    /// How long one delivery may take before it counts as failed.
    ///
    /// Raise it above your slowest listener. Defaults to 10 seconds.
    #[serde(rename = "delivery_timeout_ms", with = "millis")]
    pub delivery_timeout: Duration,
    /// How much of the lease must be left for a delivery to start.
    ///
    /// Raise it where clocks or networks jump. Defaults to 1 second.
    #[serde(rename = "margin_ms", with = "millis")]
    pub margin: Duration,
    /// How long to wait for a wake before looking anyway.
    ///
    /// Lower it where other processes write and latency matters. Defaults to 500 ms.
    #[serde(rename = "poll_ms", with = "millis")]
    pub poll: Duration,
    /// How often to read from the head of every shard, for late commits and replays.
    ///
    /// Defaults to 5 seconds.
    #[serde(rename = "sweep_ms", with = "millis")]
    pub sweep: Duration,
    /// How many rows to have in memory at a time; fewer where payloads are large, aiming at 32 MiB of
    /// them, but at least two of each shard.
    ///
    /// Raise it for small events and fast listeners. Defaults to 2000.
    pub batch: NonZeroU32,
    /// How many events may be in delivery, or delivered and not yet settled.
    ///
    /// Bounds what a killed relay can cause to be delivered twice. Defaults to 2000.
    pub max_unsettled: NonZeroU32,
    /// How many deliveries run at a time.
    ///
    /// Where there are several routes, each leaves a quarter of them to the others. Raise it for
    /// listeners that wait long on a network. Defaults to 16.
    pub workers: NonZeroU32,
    /// How long a stop may take.
    ///
    /// Deliveries start until `delivery_timeout` is left of it, so that the last one can finish. A
    /// delivery that does not finish in time is abandoned, and its event is delivered again: a
    /// `drain` that is not longer than `delivery_timeout` is allowed, and warned about. Raise it to
    /// deliver more of a backlog before a stop. Defaults to 15 seconds.
    #[serde(rename = "drain_ms", with = "millis")]
    pub drain: Duration,
    /// How many attempts an event has before it is given up.
    ///
    /// Defaults to 10.
    pub max_attempts: NonZeroU32,
    /// How many relays in a row may die in the delivery of an event before it is given up.
    ///
    /// Relays that are killed for other reasons seldom die over the same event again; raise it where
    /// they are killed often. Defaults to 5.
    pub max_crashes: NonZeroU32,
    /// What becomes of a keyed event that was given up.
    ///
    /// Defaults to holding its key.
    pub on_dead: OnDead,
    /// What becomes of an event that nobody here can read yet.
    ///
    /// Let it wait while an upgrade rolls out. Defaults to a dead letter at once.
    pub unroutable: Unroutable,
    /// How long delivered rows are kept; zero deletes them at once, which costs least.
    ///
    /// With `claim = none` it counts for every event, in any state, and zero is refused. An event
    /// id given twice is noticed within it. Defaults to 7 days.
    #[serde(rename = "retention_done_ms", with = "millis")]
    pub retention_done: Duration,
    /// How long dead letters are kept that hold no key; those that hold one stay.
    ///
    /// Raise it above the time you need to notice and replay them. Defaults to 30 days.
    #[serde(rename = "retention_dead_ms", with = "millis")]
    pub retention_dead: Duration,
    /// How long the trail of failures and operations is kept.
    ///
    /// Defaults to 30 days.
    #[serde(rename = "retention_audit_ms", with = "millis")]
    pub retention_audit: Duration,
    /// How long inboxes remember what they took in; later, a duplicate has its effect again.
    ///
    /// Raise it above the longest time after which a source may send again. Defaults to 30 days.
    #[serde(rename = "retention_inbox_ms", with = "millis")]
    pub retention_inbox: Duration,
    /// How often to delete what is past its retention, give or take a half by chance.
    ///
    /// Raise it where the database has quiet hours; a year is as good as never. Defaults to 1
    /// minute.
    #[serde(rename = "purge_every_ms", with = "millis")]
    pub purge_every: Duration,
    /// How many rows one statement deletes at most; 10,000 at most, not to hold locks for long.
    ///
    /// Defaults to 500.
    pub purge_batch: NonZeroU32,
    /// How often to count what there is, give or take a half by chance.
    ///
    /// CrashGuard costs more the more is pending; it never takes more than a twentieth of one
    /// connection. Defaults to 15 seconds.
    #[serde(rename = "gauges_every_ms", with = "millis")]
    pub gauges_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            claim: ClaimMode::Shards,
            order: Order::Key,
            lease: Duration::from_secs(15),
            delivery_timeout: Duration::from_secs(10),
            margin: Duration::from_secs(1),
            poll: Duration::from_millis(500),
            sweep: Duration::from_secs(5),
            batch: count(2000),
            max_unsettled: count(2000),
            workers: count(16),
            drain: Duration::from_secs(15),
            max_attempts: count(10),
            max_crashes: count(5),
            on_dead: OnDead::Hold,
            unroutable: Unroutable::Dead,
            retention_done: Duration::from_secs(7 * DAY),
            retention_dead: Duration::from_secs(30 * DAY),
            retention_audit: Duration::from_secs(30 * DAY),
            retention_inbox: Duration::from_secs(30 * DAY),
            purge_every: Duration::from_secs(60),
            purge_batch: count(500),
            gauges_every: Duration::from_secs(15),
        }
    }
}

const DAY: u64 = 86_400;

/// Longer waits are mistakes, and would overflow a clock.
const LONGEST: Duration = Duration::from_secs(366 * DAY);

/// One statement that deletes more rows keeps others waiting.
const MOST_PURGED: u32 = 10_000;

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a default is not zero")
}

impl Settings {
    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`], with the numbers in the message.
    pub fn check(&self) -> Result<()> {
        self.check_lease()?;
        self.check_waits()?;
        self.check_upkeep()?;
        if (self.claim, self.order) == (ClaimMode::Shards, Order::None) {
            return refuse(
                "order is none, and who owns shards delivers in order: set claim to rows, or \
                 order to key"
                    .to_owned(),
            );
        }
        if self.workers > self.max_unsettled {
            return refuse(format!(
                "workers ({}) exceed max_unsettled ({}): the rest could never start",
                self.workers, self.max_unsettled
            ));
        }
        Ok(())
    }

    /// Tells of settings that are allowed and have a price.
    pub(super) fn warn(&self) {
        let Self { drain, delivery_timeout, .. } = self;
        if drain <= delivery_timeout {
            warn!(
                ?drain,
                ?delivery_timeout,
                "drain is not longer than delivery_timeout: a stop may abandon deliveries, and \
                 their events are delivered again; raise drain"
            );
        }
    }

    fn check_lease(&self) -> Result<()> {
        let needed = self.delivery_timeout.saturating_add(self.margin);
        if self.lease >= needed {
            return Ok(());
        }
        refuse(format!(
            "lease ({:?}) is shorter than delivery_timeout + margin ({:?} + {:?}): \
             a delivery could outlive it; raise lease to at least {needed:?}",
            self.lease, self.delivery_timeout, self.margin
        ))
    }

    fn check_waits(&self) -> Result<()> {
        let positive = [
            ("delivery_timeout", self.delivery_timeout),
            ("margin", self.margin),
            ("poll", self.poll),
            ("sweep", self.sweep),
            ("purge_every", self.purge_every),
            ("gauges_every", self.gauges_every),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| value.is_zero()) {
            return refuse(format!("{name} is zero: give it a positive duration"));
        }
        let bounded = [("lease", self.lease), ("drain", self.drain)];
        let mut durations = bounded.iter().chain(&positive);
        if let Some((name, value)) = durations.find(|(_, value)| *value > LONGEST) {
            return refuse(format!("{name} ({value:?}) is longer than a year: lower it"));
        }
        Ok(())
    }

    fn check_upkeep(&self) -> Result<()> {
        let kept = [
            ("retention_dead", "dead letters", self.retention_dead),
            ("retention_audit", "the trail of a failure", self.retention_audit),
            ("retention_inbox", "what an inbox has noted", self.retention_inbox),
        ];
        if let Some((name, what, _)) = kept.iter().find(|(_, _, value)| value.is_zero()) {
            return refuse(format!(
                "{name} is zero: {what} would be gone before anybody could use it; give it a \
                 positive duration"
            ));
        }
        if self.purge_batch.get() > MOST_PURGED {
            return refuse(format!(
                "purge_batch ({}) is more than {MOST_PURGED}: one statement would hold its locks \
                 for too long; lower it, a purge takes as many batches as it needs",
                self.purge_batch
            ));
        }
        Ok(())
    }
}

fn refuse(message: String) -> Result<()> {
    Err(Error::new(ErrorKind::Configuration, message))
}

mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::cast_possible_truncation, reason = "585 million years fit")]
    pub(super) fn serialize<S: Serializer>(value: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(value.as_millis() as u64)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        u64::deserialize(from).map(Duration::from_millis)
    }
}
