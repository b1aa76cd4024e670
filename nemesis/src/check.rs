//! The checker: compares what was committed with what was delivered.

mod faults;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

pub use self::faults::Faults;
use crate::bank::Account;
use crate::log::{Entry, Line, parse};

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Events that were committed.
    pub committed: usize,
    /// Events delivered at least once.
    pub delivered: usize,
    /// Committed and never delivered.
    pub lost: usize,
    /// Delivered and never committed.
    pub ghosts: usize,
    /// First deliveries of a key out of order.
    pub inversions: usize,
    /// Deliveries beyond the first.
    pub duplicates: usize,
    /// Duplicates that no fault accounts for.
    pub unexplained: usize,
    /// The most duplicates that one fault caused.
    pub worst: usize,
    /// Verdicts that came too late and changed nothing.
    pub fenced: usize,
    /// Leases lost, ordered or not: a machine under load pauses relays, too.
    pub lapses: usize,
    /// Events that went from memory to delivery.
    pub from_local_queue: u64,
    /// Events that did not come as they were emitted.
    pub damaged: usize,
    /// Events that came before they were due.
    pub early: usize,
    /// Events that were done before anybody had heard of them.
    pub done_undelivered: usize,
    /// Replays that were followed by no delivery.
    pub unanswered_replays: usize,
    /// Transactions that ended as they should, and those that did not.
    pub transactions: (u64, u64),
    /// The first accounts with which something is wrong, and at which of their counts.
    pub accounts: BTreeMap<i64, i64>,
    /// The first events with which something is wrong.
    pub events: BTreeSet<String>,
}

/// As many accounts and events are shown when something is wrong.
const SHOWN: usize = 3;

/// As many lines at most.
const LINES: usize = 60;

impl Report {
    /// Compares what was committed with the log, line by line in order of time.
    ///
    /// `truth` is what each account has committed.
    pub fn of(committed: &[Account], log: &str, faults: &Faults) -> Self {
        let mut check = Check { committed, ..Check::default() };
        for (number, line) in log.lines().filter_map(parse).enumerate() {
            check.take_in(number, &line);
        }
        check.conclude(faults)
    }

    /// Whether a promise does not hold.
    pub const fn is_broken(&self) -> bool {
        self.lost + self.ghosts + self.inversions + self.unexplained + self.damaged + self.early > 0
            || self.done_undelivered + self.unanswered_replays > 0
    }

    /// The lines of the log around what is wrong.
    pub fn excerpt(&self, log: &str) -> String {
        let is_shown = |line: &&str| match parse(line).map(|line| line.entry) {
            Some(Entry::Ordered { id, account, n } | Entry::Unordered { id, account, n }) => {
                let near = |at: &i64| n.abs_diff(*at) <= 1;
                self.accounts.get(&account).is_some_and(near) || self.events.contains(id)
            }
            Some(
                Entry::Refused { id }
                | Entry::Damaged { id }
                | Entry::Early { id }
                | Entry::Replay { id }
                | Entry::Done { id },
            ) => self.events.contains(id),
            _ => false,
        };
        log.lines().filter(is_shown).take(LINES).map(|line| format!("  {line}\n")).collect()
    }
}

/// An event: its kind, account and count.
type Event = (bool, i64, i64);

/// How an event arrived.
struct Seen<'a> {
    id: &'a str,
    deliveries: Vec<Delivery<'a>>,
}

#[derive(Clone, Copy)]
struct Delivery<'a> {
    incarnation: &'a str,
    /// When its line was written.
    at: i64,
    /// The number of a line by which it had begun.
    begun: usize,
}

/// A lease lasts for at least so long when a delivery begins, in microseconds: the shortest margin.
const MARGIN: i64 = 50_000;

#[derive(Default)]
struct Check<'a> {
    committed: &'a [Account],
    report: Report,
    seen: HashMap<Event, Seen<'a>>,
    /// The last first delivery of each account.
    last: HashMap<i64, i64>,
    /// How often each incarnation lost its lease or gave up waiting.
    lapses: BTreeMap<&'a str, usize>,
    /// The last fault of each incarnation since it took shards: the number of its line.
    stood_still: HashMap<&'a str, usize>,
    /// When it was known that an incarnation's verdict on an event came too late.
    fenced: HashMap<(&'a str, &'a str), i64>,
    /// Events that a listener has taken.
    delivered_ids: HashSet<&'a str>,
    /// Replays that wait for a delivery.
    replayed: HashSet<&'a str>,
}

impl<'a> Check<'a> {
    fn take_in(&mut self, number: usize, line: &Line<'a>) {
        // What comes after a fault may have begun before it.
        let begun = self.stood_still.get(line.incarnation).copied().unwrap_or(number);
        let delivery = Delivery { incarnation: line.incarnation, at: line.at, begun };
        match line.entry {
            Entry::Ordered { id, account, n } => self.delivered(delivery, id, (true, account, n)),
            Entry::Unordered { id, account, n } => {
                self.delivered(delivery, id, (false, account, n))
            }
            Entry::Refused { id } => drop(self.replayed.remove(id)),
            Entry::Damaged { id } => {
                self.report.damaged += 1;
                self.wrong_event(id);
            }
            Entry::Early { id } => {
                self.report.early += 1;
                self.wrong_event(id);
            }
            Entry::Replay { id } => drop(self.replayed.insert(id)),
            Entry::Done { id } if self.delivered_ids.contains(id) => {}
            Entry::Done { id } => {
                self.report.done_undelivered += 1;
                self.wrong_event(id);
            }
            Entry::Transactions { succeeded, failed } => {
                let before = self.report.transactions;
                self.report.transactions = (before.0 + succeeded, before.1 + failed);
            }
            Entry::Fenced { id } => {
                self.report.fenced += 1;
                self.fenced.insert((line.incarnation, id), line.at);
            }
            Entry::LeaseLost => {
                self.report.lapses += 1;
                *self.lapses.entry(line.incarnation).or_default() += 1;
            }
            Entry::Abandoned { .. } => *self.lapses.entry(line.incarnation).or_default() += 1,
            Entry::FromLocalQueue { events } => self.report.from_local_queue += events,
            Entry::Fault { .. } => drop(self.stood_still.insert(line.incarnation, number)),
            Entry::ShardsAcquired { .. } => drop(self.stood_still.remove(line.incarnation)),
            Entry::WritesFinished | Entry::Stopped => {}
        }
    }

    fn delivered(&mut self, delivery: Delivery<'a>, id: &'a str, event: Event) {
        let (is_ordered, account, n) = event;
        self.delivered_ids.insert(id);
        self.replayed.remove(id);
        let seen = self.seen.get(&event);
        // Of two events with the same count, one was not committed.
        if !(1..=self.committed(is_ordered, account)).contains(&n)
            || seen.is_some_and(|seen| seen.id != id)
        {
            self.report.ghosts += 1;
            self.wrong_event(id);
            self.wrong(account, n);
            return;
        }
        let seen = self.seen.entry(event).or_insert_with(|| Seen { id, deliveries: Vec::new() });
        seen.deliveries.push(delivery);
        if seen.deliveries.len() > 1 {
            self.report.duplicates += 1;
        } else if is_ordered && self.last.insert(account, n).is_some_and(|before| before > n) {
            self.report.inversions += 1;
            self.wrong(account, n);
        }
    }

    fn committed(&self, is_ordered: bool, account: i64) -> i64 {
        let index = usize::try_from(account).unwrap_or(usize::MAX);
        let account = self.committed.get(index).copied().unwrap_or_default();
        if is_ordered { account.ordered } else { account.unordered }
    }

    fn wrong(&mut self, account: i64, n: i64) {
        if self.report.accounts.len() < SHOWN {
            self.report.accounts.entry(account).or_insert(n);
        }
    }

    fn wrong_event(&mut self, id: &str) {
        if self.report.events.len() < SHOWN {
            self.report.events.insert(id.to_owned());
        }
    }

    fn conclude(mut self, faults: &Faults) -> Report {
        let committed: i64 = self.committed.iter().map(Account::events).sum();
        self.report.committed = usize::try_from(committed).unwrap_or(0);
        self.report.delivered = self.seen.len();
        self.report.lost = self.report.committed.saturating_sub(self.seen.len());
        self.report.unanswered_replays = self.replayed.len();
        let unanswered_replays: Vec<&str> = self.replayed.iter().copied().take(SHOWN).collect();
        unanswered_replays.into_iter().for_each(|id| self.wrong_event(id));
        self.find_lost();
        self.blame(faults);
        self.report
    }

    fn find_lost(&mut self) {
        let first_lost = |(number, account): (i64, &Account)| {
            let ordered = (1..=account.ordered).map(|n| (true, number, n));
            let mut all = ordered.chain((1..=account.unordered).map(|n| (false, number, n)));
            all.find(|event| !self.seen.contains_key(event))
        };
        let lost: Vec<Event> =
            (0..).zip(self.committed).filter_map(first_lost).take(SHOWN).collect();
        lost.into_iter().for_each(|(_, account, n)| self.wrong(account, n));
    }

    /// Charges each duplicate to an incarnation that something happened to. A duplicate is one delivery
    /// more than needed; the one that was needed is best taken from an incarnation in good health, and
    /// otherwise it is the last that began, whose verdict was written.
    fn blame(&mut self, faults: &Faults) {
        let mut charged: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unexplained = 0;
        let mut wronged = Vec::new();
        let twice = self.seen.iter().filter(|(_, seen)| seen.deliveries.len() > 1);
        for ((_, account, n), seen) in twice {
            let superfluous = seen.deliveries.len() - 1;
            let mut guilty = self.in_order(seen);
            guilty.retain(|it| {
                self.faults_of(it.incarnation, faults) > 0 || self.is_late(it, seen.id)
            });
            guilty.truncate(superfluous);
            unexplained += superfluous - guilty.len();
            wronged.extend((guilty.len() < superfluous).then_some((*account, *n)));
            for it in guilty {
                *charged.entry(it.incarnation).or_default() += 1;
            }
        }
        let per_fault = |(incarnation, count): (&&str, &usize)| {
            count.div_ceil(self.faults_of(incarnation, faults).max(1))
        };
        let worst = charged.iter().map(per_fault).max().unwrap_or(0);
        (self.report.unexplained, self.report.worst) = (unexplained, worst);
        wronged.into_iter().for_each(|(account, n)| self.wrong(account, n));
    }

    /// The deliveries of an event, those first whose verdict did not count.
    ///
    /// The log has them in the order in which listeners ended. A life that was stopped inside its
    /// listener ends it when another one has delivered the event. Its verdict is fenced then, and
    /// the log says so unless it was killed first.
    fn in_order(&self, seen: &Seen<'a>) -> Vec<Delivery<'a>> {
        let mut deliveries = seen.deliveries.clone();
        let counts = |it: &Delivery<'a>| !self.fenced.contains_key(&(it.incarnation, seen.id));
        deliveries.sort_by_key(|it| (counts(it), it.begun));
        deliveries
    }

    /// Whether its verdict came later than a lease may have ended, on a machine that was too busy to
    /// write it. One that is fenced sooner had its event taken away, which must not be.
    fn is_late(&self, delivery: &Delivery<'a>, id: &'a str) -> bool {
        let fenced = self.fenced.get(&(delivery.incarnation, id));
        fenced.is_some_and(|at| at - delivery.at >= MARGIN)
    }

    /// A pause makes a relay lose its lease: that is one fault, not two.
    fn faults_of(&self, incarnation: &str, faults: &Faults) -> usize {
        let (pauses, kills) = faults.of(incarnation);
        let lapses = self.lapses.get(incarnation).copied().unwrap_or_default();
        kills + pauses.max(lapses)
    }
}

#[cfg(test)]
mod tests;
