//! The checker: what was committed against what was delivered.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::log::{Entry, Line, parse};

/// What was done to each life of a relay.
#[derive(Clone, Debug, Default)]
pub struct Faults(BTreeMap<String, Done>);

/// What was done to one life.
#[derive(Clone, Copy, Debug, Default)]
struct Done {
    pauses: usize,
    kills: usize,
}

impl Faults {
    /// It was paused for longer than its lease, or its network was disturbed.
    pub fn paused(&mut self, life: &str) {
        self.0.entry(life.to_owned()).or_default().pauses += 1;
    }

    /// It was killed.
    pub fn killed(&mut self, life: &str) {
        self.0.entry(life.to_owned()).or_default().kills += 1;
    }

    /// These as well.
    pub fn extend(&mut self, others: Self) {
        for (life, done) in others.0 {
            let mine = self.0.entry(life).or_default();
            *mine = Done { pauses: mine.pauses + done.pauses, kills: mine.kills + done.kills };
        }
    }

    /// How many there were of both kinds: pauses, kills.
    pub fn count(&self) -> (usize, usize) {
        let sum = |of: fn(&Done) -> usize| self.0.values().map(of).sum();
        (sum(|done| done.pauses), sum(|done| done.kills))
    }
}

/// What a run came to.
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
    pub hot: u64,
    /// The first accounts with which something is wrong.
    pub wronged: BTreeSet<i64>,
}

/// As many accounts are shown when something is wrong.
const SHOWN: usize = 3;

/// As many lines of each.
const LINES: usize = 40;

impl Report {
    /// Compares what was committed with the log, line by line in order of time.
    ///
    /// `truth` is how many steps each account has committed; of each there are a [`Step`] and a
    /// [`Glimpse`](crate::Glimpse), or only the former where `kinds` is 1.
    ///
    /// [`Step`]: crate::Step
    pub fn of(truth: &[i64], kinds: usize, log: &str, faults: &Faults) -> Self {
        let mut check = Check { truth, ..Check::default() };
        for line in log.lines().filter_map(parse) {
            check.take_in(&line);
        }
        check.conclude(kinds, faults)
    }

    /// Whether a promise does not hold.
    pub const fn is_broken(&self) -> bool {
        self.lost + self.ghosts + self.inversions + self.unexplained > 0
    }

    /// The last lines of the log about accounts with which something is wrong.
    pub fn excerpt(&self, log: &str) -> String {
        let account = |line: &&str| match parse(line).map(|line| line.entry) {
            Some(Entry::Step(_, account, _) | Entry::Glimpse(_, account, _)) => Some(account),
            _ => None,
        };
        let mut excerpt = String::new();
        for wronged in &self.wronged {
            let lines: Vec<&str> = log.lines().filter(|it| account(it) == Some(*wronged)).collect();
            let last = lines.len().saturating_sub(LINES);
            excerpt +=
                &format!("account {wronged}, life, microseconds, what, event, account, count:\n");
            excerpt.extend(lines[last..].iter().map(|line| format!("  {line}\n")));
        }
        excerpt
    }
}

/// An event: its kind, account and count.
type Event = (bool, i64, i64);

#[derive(Default)]
struct Check<'a> {
    truth: &'a [i64],
    report: Report,
    /// By whom each event was delivered, in order.
    seen: HashMap<Event, Vec<&'a str>>,
    /// The last first delivery of each account.
    last: HashMap<i64, i64>,
    /// How often each life lost its lease or gave up waiting.
    lapses: BTreeMap<&'a str, usize>,
}

impl<'a> Check<'a> {
    fn take_in(&mut self, line: &Line<'a>) {
        match line.entry {
            Entry::Step(_, account, n) => self.delivered(line.life, (true, account, n)),
            Entry::Glimpse(_, account, n) => self.delivered(line.life, (false, account, n)),
            Entry::Fenced => self.report.fenced += 1,
            Entry::LeaseLost => {
                self.report.lapses += 1;
                *self.lapses.entry(line.life).or_default() += 1;
            }
            Entry::Abandoned(_) => *self.lapses.entry(line.life).or_default() += 1,
            Entry::Hot(count) => self.report.hot += count,
            Entry::Took(_) | Entry::Wrote | Entry::Stopped => {}
        }
    }

    fn delivered(&mut self, life: &'a str, event: Event) {
        let (ordered, account, n) = event;
        let index = usize::try_from(account).unwrap_or(usize::MAX);
        if self.truth.get(index).is_none_or(|steps| n < 1 || n > *steps) {
            self.report.ghosts += 1;
            self.wrong(account);
            return;
        }
        let lives = self.seen.entry(event).or_default();
        lives.push(life);
        if lives.len() > 1 {
            self.report.duplicates += 1;
        } else if ordered && self.last.insert(account, n).is_some_and(|before| before > n) {
            self.report.inversions += 1;
            self.wrong(account);
        }
    }

    fn wrong(&mut self, account: i64) {
        if self.report.wronged.len() < SHOWN {
            self.report.wronged.insert(account);
        }
    }

    fn conclude(mut self, kinds: usize, faults: &Faults) -> Report {
        let steps: i64 = self.truth.iter().sum();
        self.report.committed = usize::try_from(steps).unwrap_or(0) * kinds;
        self.report.delivered = self.seen.len();
        self.report.lost = self.report.committed.saturating_sub(self.seen.len());
        self.find_lost(kinds);
        self.blame(faults);
        self.report
    }

    fn find_lost(&mut self, kinds: usize) {
        let is_lost = |(account, steps): &(i64, i64)| {
            let kinds = [true, false].into_iter().take(kinds);
            let all = kinds.flat_map(|kind| (1..=*steps).map(move |n| (kind, *account, n)));
            all.into_iter().any(|event| !self.seen.contains_key(&event))
        };
        let truth = (0..).zip(self.truth.iter().copied());
        let lost: Vec<i64> =
            truth.filter(is_lost).map(|(account, _)| account).take(SHOWN).collect();
        lost.into_iter().for_each(|account| self.wrong(account));
    }

    /// Charges each duplicate to a life that something happened to. A duplicate is one delivery
    /// more than needed; the one that was needed is best taken from a life in good health.
    fn blame(&mut self, faults: &Faults) {
        let mut charged: BTreeMap<&str, usize> = BTreeMap::new();
        let mut unexplained = 0;
        let mut wronged = Vec::new();
        for ((_, account, _), lives) in self.seen.iter().filter(|(_, lives)| lives.len() > 1) {
            let is_guilty = |life: &&&str| self.faults_of(life, faults) > 0;
            let guilty: Vec<&&str> = lives.iter().filter(is_guilty).collect();
            let most = guilty.len().min(lives.len() - 1);
            unexplained += lives.len() - 1 - most;
            wronged.extend((most < lives.len() - 1).then_some(*account));
            for life in guilty.into_iter().take(most) {
                *charged.entry(life).or_default() += 1;
            }
        }
        let per_fault =
            |(life, count): (&&str, &usize)| count.div_ceil(self.faults_of(life, faults).max(1));
        let worst = charged.iter().map(per_fault).max().unwrap_or(0);
        (self.report.unexplained, self.report.worst) = (unexplained, worst);
        wronged.into_iter().for_each(|account| self.wrong(account));
    }

    /// A pause makes a relay lose its lease: that is one fault, not two.
    fn faults_of(&self, life: &str, faults: &Faults) -> usize {
        let done = faults.0.get(life).copied().unwrap_or_default();
        let lapses = self.lapses.get(life).copied().unwrap_or_default();
        done.kills + done.pauses.max(lapses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[&str]) -> String {
        lines.iter().map(|line| format!("{line}\n")).collect()
    }

    #[test]
    fn each_kind_of_harm_is_counted() {
        let log = log(&[
            "a 1 step x 1 1",
            "a 2 step x 1 3",
            "a 3 step x 1 2",
            "a 4 step x 1 3",
            "a 5 step x 9 9",
            "a 6 step x 1 5",
            "b 7 fenced",
            "b 8 hot 3",
        ]);

        let report = Report::of(&[0, 4], 1, &log, &Faults::default());

        let expected = Report {
            committed: 4,
            delivered: 3,
            lost: 1,
            ghosts: 2,
            inversions: 1,
            duplicates: 1,
            unexplained: 1,
            worst: 0,
            fenced: 1,
            lapses: 0,
            hot: 3,
            wronged: BTreeSet::from([1, 9]),
        };
        assert_eq!(report, expected);
        let excerpt = report.excerpt(&log);
        assert!(
            excerpt.contains("account 1,") && excerpt.contains("  a 5 step x 9 9\n"),
            "{excerpt}"
        );
        assert!(!excerpt.contains("fenced"), "{excerpt}");
    }

    #[test]
    fn a_late_duplicate_is_no_inversion() {
        let log = log(&["a 1 step x 0 1", "a 2 step x 0 2", "b 3 step x 0 1"]);

        assert_eq!(Report::of(&[2], 1, &log, &Faults::default()).inversions, 0);
    }

    #[test]
    fn duplicates_are_charged_to_whom_something_happened() {
        let log = log(&[
            "a 1 glimpse x 0 1",
            "b 2 glimpse x 0 1",
            "a 3 glimpse x 0 2",
            "b 4 glimpse x 0 2",
            "b 5 glimpse x 0 3",
            "c 6 glimpse x 0 3",
        ]);
        let mut faults = Faults::default();
        faults.killed("a");

        let report = Report::of(&[3], 1, &log, &faults);

        assert_eq!((report.duplicates, report.unexplained, report.worst), (3, 1, 2));
    }

    #[test]
    fn a_lease_that_was_lost_without_an_order_is_a_fault_too() {
        let log = log(&["a 1 step x 0 1", "a 2 lost", "b 3 step x 0 1"]);

        let report = Report::of(&[1], 1, &log, &Faults::default());

        assert_eq!((report.duplicates, report.unexplained, report.worst), (1, 0, 1));
    }
}
