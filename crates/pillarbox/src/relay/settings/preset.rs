//! Settings that say what they are for.

use std::time::Duration;

use crate::relay::settings::Settings;

impl Settings {
    /// For one process that writes and delivers: quiet while there is nothing to do.
    ///
    /// | setting | here | why |
    /// | --- | --- | --- |
    /// | `poll` | 5 s | A commit through [`Relay::outbox`](crate::Relay::outbox) wakes the relay, so a poll only finds what others wrote: a plain INSERT, a transaction whose end the outbox did not see. An idle relay reads a tenth as often as with the default. |
    /// | `lease` | 15 s, the default | Nobody waits to take over; a process that was killed and starts again waits for what is left of it. It cannot be much shorter: `delivery_timeout` and `margin` take 11 s, and the other 4 s are how long an event may wait in memory for a worker. |
    ///
    /// Everything else is as by default. Where an `outbox.emit` into a transaction of your own
    /// must not wait for the poll, call [`Outbox::wake`](crate::Outbox::wake) after its commit.
    ///
    /// # Examples
    /// ```
    /// use pillarbox::{Listeners, MemoryStore, Relay, RelaySettings};
    ///
    /// let relay = Relay::new(MemoryStore::new(), Listeners::new())
    ///     .settings(RelaySettings::one_process());
    /// # drop(relay);
    /// # RelaySettings::one_process().check()?;
    /// # Ok::<(), pillarbox::Error>(())
    /// ```
    pub fn one_process() -> Self {
        Self { poll: Duration::from_secs(5), ..Self::default() }
    }

    /// For several processes that share the work: quick to take over, and to see each other's
    /// events.
    ///
    /// | setting | here | why |
    /// | --- | --- | --- |
    /// | `delivery_timeout` | 5 s | The lease cannot be shorter than a delivery, so a shorter takeover begins here. Raise it, and `lease` by as much, for listeners that take longer. |
    /// | `lease` | 8 s | The keys of a relay that was killed wait this long for another one; by default it is 15 s. It is `delivery_timeout` and `margin`, and 2 s for which an event may wait in memory for a worker. |
    /// | `poll` | 250 ms | Half of it is what an event of another process waits where the database cannot tell: on MySQL, behind a pooler, or for a plain INSERT. Each relay reads only the shards it holds, so many relays together read little more than one. |
    ///
    /// Everything else is as by default. A process that writes and delivers nothing needs no relay:
    /// see [`Relay::writer_only`](crate::Relay::writer_only).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use pillarbox::RelaySettings;
    ///
    /// let settings = RelaySettings {
    ///     delivery_timeout: Duration::from_secs(20), // a slow partner
    ///     lease: Duration::from_secs(23),
    ///     ..RelaySettings::many_processes()
    /// };
    /// # settings.check()?;
    /// # Ok::<(), pillarbox::Error>(())
    /// ```
    pub fn many_processes() -> Self {
        Self {
            delivery_timeout: Duration::from_secs(5),
            lease: Duration::from_secs(8),
            poll: Duration::from_millis(250),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of a lease is how long an event may wait in memory; with nothing left, none
    /// would ever be delivered from there.
    #[test]
    fn presets_agree_with_themselves_and_leave_room_for_the_hot_path() {
        for preset in [Settings::default(), Settings::one_process(), Settings::many_processes()] {
            preset.check().unwrap();
            let room = preset.lease - preset.delivery_timeout - preset.margin;
            assert!(room >= Duration::from_secs(2), "{room:?}");
        }
    }

    #[test]
    fn presets_differ_in_what_they_are_for() {
        let (default, one) = (Settings::default(), Settings::one_process());
        let many = Settings::many_processes();

        assert!(one.poll > default.poll && default.poll > many.poll);
        assert!(many.lease < default.lease);
    }
}
