//! The numbers an operator may turn.

use std::{num::NonZeroU32, time::Duration};

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};
use crate::retry::OnDead;

/// The numbers of a relay. In files, durations are whole milliseconds: `lease_ms = 15000`.
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
    /// How many rows to have in memory at a time.
    ///
    /// Raise it for small events and fast listeners. Defaults to 1000.
    pub batch: NonZeroU32,
    /// How many events may be in delivery, or delivered and not yet settled.
    ///
    /// Bounds what a killed relay can cause to be delivered twice. Defaults to 2000.
    pub max_unsettled: NonZeroU32,
    /// How many deliveries run at a time.
    ///
    /// Raise it for listeners that wait on a network. Defaults to 4.
    pub workers: NonZeroU32,
    /// How long a stop waits for deliveries under way.
    ///
    /// Defaults to 5 seconds.
    #[serde(rename = "drain_ms", with = "millis")]
    pub drain: Duration,
    /// How many attempts an event has before it is given up.
    ///
    /// Defaults to 10.
    pub max_attempts: NonZeroU32,
    /// What becomes of a keyed event that was given up.
    ///
    /// Defaults to holding its key.
    pub on_dead: OnDead,
    /// How long delivered rows are kept; zero deletes them at once, which costs least.
    ///
    /// [`Store::purge`](crate::Store::purge) removes older ones. Defaults to 7 days.
    #[serde(rename = "retention_done_ms", with = "millis")]
    pub retention_done: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(15),
            delivery_timeout: Duration::from_secs(10),
            margin: Duration::from_secs(1),
            poll: Duration::from_millis(500),
            sweep: Duration::from_secs(5),
            batch: count(1000),
            max_unsettled: count(2000),
            workers: count(4),
            drain: Duration::from_secs(5),
            max_attempts: count(10),
            on_dead: OnDead::Hold,
            retention_done: Duration::from_secs(7 * 86_400),
        }
    }
}

/// Longer waits are mistakes, and would overflow a clock.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a default is not zero")
}

impl Settings {
    /// Refuses settings that contradict each other.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`], with the numbers in the message.
    pub fn check(&self) -> Result<()> {
        let needed = self.delivery_timeout.saturating_add(self.margin);
        if self.lease < needed {
            return refuse(format!(
                "lease ({:?}) is shorter than delivery_timeout + margin ({:?} + {:?}): \
                 a delivery could outlive it; raise lease to at least {needed:?}",
                self.lease, self.delivery_timeout, self.margin
            ));
        }
        let positive = [
            ("delivery_timeout", self.delivery_timeout),
            ("margin", self.margin),
            ("poll", self.poll),
            ("sweep", self.sweep),
        ];
        if let Some((name, _)) = positive.iter().find(|(_, value)| value.is_zero()) {
            return refuse(format!("{name} is zero: give it a positive duration"));
        }
        let bounded = [("lease", self.lease), ("drain", self.drain)];
        let mut durations = bounded.iter().chain(&positive);
        if let Some((name, value)) = durations.find(|(_, value)| *value > LONGEST) {
            return refuse(format!("{name} ({value:?}) is longer than a year: lower it"));
        }
        if self.workers > self.max_unsettled {
            return refuse(format!(
                "workers ({}) exceed max_unsettled ({}): the rest could never start",
                self.workers, self.max_unsettled
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_agree_with_each_other() {
        Settings::default().check().unwrap();
    }

    #[test]
    fn a_lease_shorter_than_a_delivery_is_refused_with_the_numbers() {
        let settings = Settings { lease: Duration::from_secs(5), ..Settings::default() };

        let message = settings.check().unwrap_err().to_string();

        assert!(message.starts_with("lease (5s) is shorter than"), "{message}");
        assert!(message.ends_with("raise lease to at least 11s"), "{message}");
    }

    #[test]
    fn contradictions_are_refused() {
        let zero = Settings { poll: Duration::ZERO, ..Settings::default() };
        let crowded = Settings { workers: count(3000), ..Settings::default() };

        let endless = Settings { delivery_timeout: Duration::MAX, ..Settings::default() };
        assert_eq!(endless.check().unwrap_err().kind(), ErrorKind::Configuration);
        let patient = Settings { drain: Duration::MAX, ..Settings::default() };
        assert_eq!(patient.check().unwrap_err().kind(), ErrorKind::Configuration);
        assert_eq!(zero.check().unwrap_err().kind(), ErrorKind::Configuration);
        assert_eq!(crowded.check().unwrap_err().kind(), ErrorKind::Configuration);
    }

    #[test]
    fn files_speak_in_milliseconds_and_misspelt_keys_are_refused() {
        let settings: Settings = serde_json::from_str(r#"{"poll_ms": 50, "workers": 8}"#).unwrap();

        assert_eq!(settings.poll, Duration::from_millis(50));
        assert!(serde_json::from_str::<Settings>(r#"{"pol_ms": 50}"#).is_err());
    }
}
