//! What the suites say about each backend.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
};

use super::nextest::Outcome;
use crate::{Result, table::Table};

const SUITES: [&str; 2] = ["store", "tx"];

/// Every test with its result, and the tables made of them.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    cells: BTreeMap<&'a str, Cell<'a>>,
}

/// How many cases ended in which way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cell<'a> {
    Ok,
    Fail,
    /// With the reason.
    Skip(&'a str),
    /// The backend has no such test.
    Missing,
}

/// A test name of the form `suite::backend::group::case`.
struct Name<'a> {
    suite: &'a str,
    backend: &'a str,
    case: &'a str,
}

impl<'a> Report<'a> {
    /// A test passes when it skips itself, and leaves a line `test<TAB>reason` behind.
    pub(super) fn new(outcomes: &'a BTreeMap<String, Outcome>, skips: &'a str) -> Self {
        let skips: BTreeMap<_, _> =
            skips.lines().filter_map(|line| line.split_once('\t')).collect();
        let cell = |test: &str, outcome: Outcome| match (outcome, skips.get(test)) {
            (Outcome::Failed, _) => Cell::Fail,
            (Outcome::Passed, Some(reason)) => Cell::Skip(reason),
            (Outcome::Passed, None) => Cell::Ok,
        };
        let cells = outcomes.iter().map(|(test, outcome)| (test.as_str(), cell(test, *outcome)));
        Self { cells: cells.collect() }
    }

    pub(super) fn to_text(&self) -> String {
        let table = |suite: &str| format!("{suite}\n{}\n", self.table(suite).to_text());
        self.render(table, "")
    }

    pub(super) fn to_markdown(&self) -> String {
        let table = |suite: &str| format!("## {suite}\n\n{}\n", self.table(suite).to_markdown());
        self.render(table, "- ")
    }

    /// Fails if a test failed, or if a backend lacks a case that another one has.
    pub(super) fn verdict(&self) -> Result {
        let Totals { failed, .. } = self.totals();
        let missing = self.missing();
        if failed == 0 && missing.is_empty() {
            return Ok(());
        }
        let mut problems = Vec::new();
        if failed > 0 {
            problems.push(format!("{failed} failed; what they said is above the tables"));
        }
        problems.extend(missing.iter().map(|test| format!("no such test: {test}")));
        Err(problems.join("\n  ").into())
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals {
            passed: self.count(|cell| cell == Cell::Ok),
            failed: self.count(|cell| cell == Cell::Fail),
            skipped: self.count(|cell| matches!(cell, Cell::Skip(_))),
        }
    }

    /// A line for each case that was skipped, with its reason.
    pub(crate) fn skips(&self) -> impl Iterator<Item = String> {
        self.cells.iter().filter_map(|(test, cell)| match cell {
            Cell::Skip(reason) => Some(format!("skip {test}: {reason}")),
            Cell::Ok | Cell::Fail | Cell::Missing => None,
        })
    }

    fn render(&self, table: impl Fn(&str) -> String, bullet: &str) -> String {
        let mut text: String = SUITES
            .into_iter()
            .filter(|suite| !self.backends(suite).is_empty())
            .map(table)
            .collect();
        let mut notes = self.notes();
        notes.sort();
        for note in &notes {
            let _ = writeln!(text, "{bullet}{note}");
        }
        if !notes.is_empty() {
            text.push('\n');
        }
        let Totals { passed, failed, skipped } = self.totals();
        let _ = writeln!(text, "{passed} passed, {failed} failed, {skipped} skipped");
        text
    }

    /// A line for each skip, and for each test that is in none of the tables.
    fn notes(&self) -> Vec<String> {
        let strangers = self
            .cells
            .iter()
            .filter(|(test, cell)| Name::parse(test).is_none() && !matches!(cell, Cell::Skip(_)));
        let strangers = strangers.map(|(test, cell)| format!("{} {test}", cell.word()));
        self.skips().chain(strangers).collect()
    }

    fn table(&self, suite: &str) -> Table {
        let backends = self.backends(suite);
        let mut table = Table::new(["case"].into_iter().chain(backends.iter().copied()));
        for case in self.cases(suite) {
            let words = backends.iter().map(|backend| self.cell(suite, backend, case).word());
            table.row([case].into_iter().chain(words));
        }
        table
    }

    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for suite in SUITES {
            for backend in self.backends(suite) {
                let cases = self.cases(suite);
                let absent =
                    cases.iter().filter(|case| self.cell(suite, backend, case) == Cell::Missing);
                missing.extend(absent.map(|case| format!("{suite}::{backend}::{case}")));
            }
        }
        missing
    }

    fn cell(&self, suite: &str, backend: &str, case: &str) -> Cell<'a> {
        let test = format!("{suite}::{backend}::{case}");
        self.cells.get(test.as_str()).copied().unwrap_or(Cell::Missing)
    }

    fn backends(&self, suite: &str) -> BTreeSet<&'a str> {
        self.names(suite).map(|name| name.backend).collect()
    }

    fn cases(&self, suite: &str) -> BTreeSet<&'a str> {
        self.names(suite).map(|name| name.case).collect()
    }

    fn names(&self, suite: &str) -> impl Iterator<Item = Name<'a>> {
        self.cells
            .keys()
            .filter_map(|test| Name::parse(test))
            .filter(move |name| name.suite == suite)
    }

    fn count(&self, is_counted: impl Fn(Cell<'a>) -> bool) -> usize {
        self.cells.values().filter(|cell| is_counted(**cell)).count()
    }
}

impl<'a> Name<'a> {
    fn parse(test: &'a str) -> Option<Self> {
        let (suite, rest) = test.split_once("::")?;
        let (backend, case) = rest.split_once("::")?;
        let is_grouped = case.contains("::");
        (SUITES.contains(&suite) && is_grouped).then_some(Self { suite, backend, case })
    }
}

impl Cell<'_> {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "FAIL",
            Self::Skip(_) => "skip",
            Self::Missing => "-",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: [&str; 4] = [
        "store::memory::claim::order",
        "store::memory::purge::limit",
        "store::sqlite::claim::order",
        "tx::sqlite::commit::delivers",
    ];
    const SKIPS: &str = "store::memory::purge::limit\tkeeps no dead events\n";

    fn passed() -> BTreeMap<String, Outcome> {
        PASSED.into_iter().map(|test| (test.to_owned(), Outcome::Passed)).collect()
    }

    #[test]
    fn the_tables_show_every_backend_and_the_skips_with_their_reasons() {
        let mut outcomes = passed();
        outcomes.insert("store::sqlite::claim::order".to_owned(), Outcome::Failed);

        let text = Report::new(&outcomes, SKIPS).to_text();

        let expected = "\
store
case          memory  sqlite
claim::order  ok      FAIL
purge::limit  skip    -

tx
case              sqlite
commit::delivers  ok

skip store::memory::purge::limit: keeps no dead events

2 passed, 1 failed, 1 skipped
";
        assert_eq!(text, expected);
    }

    #[test]
    fn markdown_says_the_same() {
        let outcomes = passed();

        let text = Report::new(&outcomes, SKIPS).to_markdown();

        assert!(text.starts_with("## store\n\n| case         | memory | sqlite |\n"), "{text}");
        assert!(text.contains("\n- skip store::memory::purge::limit: keeps no dead events\n"));
        assert!(text.ends_with("\n3 passed, 0 failed, 1 skipped\n"));
    }

    #[test]
    fn a_case_missing_for_one_backend_is_a_failure() {
        let outcomes = passed();

        let error = Report::new(&outcomes, SKIPS).verdict().unwrap_err();

        assert_eq!(error.to_string(), "no such test: store::sqlite::purge::limit");
    }

    #[test]
    fn a_skipped_case_is_not_missing() {
        let mut outcomes = passed();
        outcomes.insert("store::sqlite::purge::limit".to_owned(), Outcome::Passed);

        assert!(Report::new(&outcomes, SKIPS).verdict().is_ok());
    }

    #[test]
    fn a_test_that_failed_after_skipping_has_failed() {
        let mut outcomes = passed();
        outcomes.insert("store::memory::purge::limit".to_owned(), Outcome::Failed);

        let text = Report::new(&outcomes, SKIPS).to_text();

        assert!(text.contains("purge::limit  FAIL"), "{text}");
    }

    #[test]
    fn a_test_in_no_table_is_listed() {
        let outcomes = BTreeMap::from([("names_are_unique".to_owned(), Outcome::Failed)]);

        let report = Report::new(&outcomes, "");

        assert_eq!(report.to_text(), "FAIL names_are_unique\n\n0 passed, 1 failed, 0 skipped\n");
        assert!(report.verdict().is_err());
    }
}
