//! What was done to relays, as far as it may make an event come twice.

use std::collections::BTreeMap;

/// What was done to each incarnation of a relay.
#[derive(Clone, Debug, Default)]
pub struct Faults(BTreeMap<String, Done>);

/// What was done to one incarnation.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    pauses: usize,
    kills: usize,
}

impl Faults {
    /// It was paused for longer than its lease, or its network was disturbed.
    pub fn paused(&mut self, incarnation: &str) {
        self.0.entry(incarnation.to_owned()).or_default().pauses += 1;
    }

    /// It was killed.
    pub fn killed(&mut self, incarnation: &str) {
        self.0.entry(incarnation.to_owned()).or_default().kills += 1;
    }

    /// These as well.
    pub fn extend(&mut self, others: Self) {
        for (incarnation, done) in others.0 {
            let mine = self.0.entry(incarnation).or_default();
            *mine = Done { pauses: mine.pauses + done.pauses, kills: mine.kills + done.kills };
        }
    }

    /// What is known of this life: pauses, kills.
    pub(super) fn of(&self, incarnation: &str) -> (usize, usize) {
        self.0.get(incarnation).map_or((0, 0), |done| (done.pauses, done.kills))
    }

    /// How many there were of both kinds: pauses, kills.
    pub fn count(&self) -> (usize, usize) {
        let sum = |of: fn(&Done) -> usize| self.0.values().map(of).sum();
        (sum(|done| done.pauses), sum(|done| done.kills))
    }
}
