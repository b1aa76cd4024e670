//! The checker: what was committed against what was delivered.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use crate::Step;

/// What a run came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Committed and never delivered.
    pub lost: usize,
    /// Delivered and never committed.
    pub ghosts: usize,
    /// First deliveries of a key out of order.
    pub inversions: usize,
    /// Deliveries beyond the first.
    pub duplicates: usize,
    /// Events delivered at least once.
    pub delivered: usize,
}

impl Report {
    /// Compares what was committed with the delivery log, line by line in order of time.
    pub fn of(committed: &[Step], log: &str) -> Self {
        let committed: BTreeSet<(i64, i64)> =
            committed.iter().map(|step| (step.account, step.n)).collect();
        let mut report = Self::default();
        let mut seen = HashSet::new();
        let mut last: BTreeMap<i64, i64> = BTreeMap::new();
        for (account, n) in log.lines().filter_map(parse) {
            if !committed.contains(&(account, n)) {
                report.ghosts += 1;
            } else if !seen.insert((account, n)) {
                report.duplicates += 1;
            } else if last.insert(account, n).is_some_and(|before| before > n) {
                report.inversions += 1;
            }
        }
        report.delivered = seen.len();
        report.lost = committed.iter().filter(|step| !seen.contains(*step)).count();
        report
    }
}

fn parse(line: &str) -> Option<(i64, i64)> {
    let mut parts = line.split(' ');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_harm_is_counted() {
        let committed: Vec<Step> = (1..=4).map(|n| Step { account: 1, n }).collect();

        let report = Report::of(&committed, "1 1 a\n1 3 c\n1 2 b\n1 3 c\n9 9 x\n");

        let expected = Report { lost: 1, ghosts: 1, inversions: 1, duplicates: 1, delivered: 3 };
        assert_eq!(report, expected);
    }
}
