//! The findings of a scenario, as a table and as JSON.

use std::fmt;

use serde_json::{Map, Value};

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was measured.
    pub what: String,
    /// The value.
    pub value: String,
    /// The required value; empty for information.
    pub goal: String,
    /// How the value compares with the goal.
    pub verdict: Verdict,
    /// Its key in JSON; findings without a key are only in the table.
    pub key: Option<&'static str>,
}

/// How a value compares with its goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Information only.
    Info,
    /// The goal is met.
    Met,
    /// A guarantee is broken, which must not happen on any machine.
    Broken,
    /// A performance target was missed, on this machine and at this load.
    Missed,
    /// A precondition failed, for example a fault that did not happen: the run proves nothing.
    Invalid,
}

impl Verdict {
    /// Whether the run failed.
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Broken | Self::Missed | Self::Invalid)
    }
}

impl Finding {
    /// Reports a value without a goal.
    pub fn info(what: impl Into<String>, value: impl fmt::Display) -> Self {
        let (value, goal) = (value.to_string(), String::new());
        Self { what: what.into(), value, goal, verdict: Verdict::Info, key: None }
    }

    /// A guarantee that holds on every machine.
    pub fn guarantee(
        what: impl Into<String>,
        value: impl fmt::Display,
        goal: &str,
        met: bool,
    ) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Broken };
        let (value, goal) = (value.to_string(), goal.to_owned());
        Self { what: what.into(), value, goal, verdict, key: None }
    }

    /// A performance target, which a busy machine may miss.
    pub fn target(
        what: impl Into<String>,
        value: impl fmt::Display,
        goal: &str,
        met: bool,
    ) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Missed };
        let (value, goal) = (value.to_string(), goal.to_owned());
        Self { what: what.into(), value, goal, verdict, key: None }
    }

    /// A fault that must have happened for the run to prove anything.
    pub fn must_happen(what: impl Into<String>, count: usize) -> Self {
        Self::precondition(what, count, "> 0", count > 0)
    }

    /// A condition without which the run proves nothing.
    pub fn precondition(
        what: impl Into<String>,
        value: impl fmt::Display,
        goal: &str,
        met: bool,
    ) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Invalid };
        Self { verdict, ..Self::guarantee(what, value, goal, met) }
    }

    /// The run could not be completed.
    pub fn failed(error: &dyn std::error::Error) -> Self {
        Self::guarantee(format!("error: {error}"), "", "", false).key("error")
    }

    /// Sets the key in JSON.
    #[must_use]
    pub const fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// A count that must be zero.
    pub fn must_be_zero(what: impl Into<String>, count: usize) -> Self {
        Self::guarantee(what, count, "0", count == 0)
    }
}

/// The findings by key, and whether all guarantees and preconditions hold.
pub fn json(findings: &[Finding]) -> Map<String, Value> {
    let value = |text: &str| text.parse().map_or_else(|_| Value::from(text), Value::Number);
    let named = |it: &Finding| Some((it.key?.to_owned(), value(&it.value)));
    let mut all: Map<String, Value> = findings.iter().filter_map(named).collect();
    let is_valid =
        findings.iter().all(|it| !matches!(it.verdict, Verdict::Broken | Verdict::Invalid));
    all.insert("valid".to_owned(), is_valid.into());
    all
}

/// The findings as lines of padded columns.
pub fn text(title: &str, findings: &[Finding]) -> String {
    let width = |of: fn(&Finding) -> &str| {
        findings.iter().map(|finding| of(finding).chars().count()).max().unwrap_or(0)
    };
    let (what, value) = (width(|it| &it.what), width(|it| &it.value));
    let goal = width(|it| &it.goal);
    let mut lines = format!("\n{title}\n");
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Info => "",
            Verdict::Met => "ok",
            Verdict::Broken => "BROKEN",
            Verdict::Missed => "MISSED",
            Verdict::Invalid => "INVALID",
        };
        let Finding { what: name, value: is, goal: must, .. } = finding;
        let line = format!("  {name:what$}  {is:>value$}  {must:goal$}  {verdict}");
        lines += line.trim_end();
        lines.push('\n');
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_promise_is_not_valid_and_numbers_are_numbers() {
        let well = [Finding::must_be_zero("lost", 0).key("lost"), Finding::info("clock", "fast")];
        let broken =
            [Finding::must_happen("kills", 0).key("kills"), Finding::info("s", "x").key("s")];

        assert_eq!(
            json(&well),
            *serde_json::json!({"lost": 0, "valid": true}).as_object().unwrap()
        );
        let expected = serde_json::json!({"kills": 0, "s": "x", "valid": false});
        assert_eq!(json(&broken), *expected.as_object().unwrap());
    }

    #[test]
    fn columns_line_up_and_misses_are_seen() {
        let findings = [
            Finding::info("events", 1000),
            Finding::must_be_zero("lost", 0),
            Finding::must_be_zero("ghosts", 2),
            Finding::target("ratio", "0.7", ">= 0.8", false),
            Finding::must_happen("kills", 0),
        ];

        let expected = "
faults, sqlite
  events  1000
  lost       0  0       ok
  ghosts     2  0       BROKEN
  ratio    0.7  >= 0.8  MISSED
  kills      0  > 0     INVALID
";
        assert_eq!(text("faults, sqlite", &findings), expected);
    }
}
