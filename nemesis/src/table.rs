//! What a show found, and how it looks in a terminal.

use std::fmt;

use serde_json::{Map, Value};

/// One line of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub what: String,
    /// What came out.
    pub value: String,
    /// What it must be; empty where it is only told.
    pub goal: String,
    /// What to make of it.
    pub verdict: Verdict,
    /// Its name in JSON; one without is for people only.
    pub key: Option<&'static str>,
}

/// What to make of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is only told.
    Told,
    /// As promised.
    Met,
    /// A promise is broken, on any machine.
    Broken,
    /// A speed was missed, on this machine and at this load.
    Missed,
    /// What should have been tried was not: the run says nothing.
    Void,
}

impl Verdict {
    /// Whether the run failed.
    pub const fn is_bad(self) -> bool {
        matches!(self, Self::Broken | Self::Missed | Self::Void)
    }
}

impl Finding {
    /// Something to know.
    pub fn told(what: impl Into<String>, value: impl fmt::Display) -> Self {
        let (value, goal) = (value.to_string(), String::new());
        Self { what: what.into(), value, goal, verdict: Verdict::Told, key: None }
    }

    /// A promise that holds on every machine.
    pub fn promise(
        what: impl Into<String>,
        value: impl fmt::Display,
        goal: &str,
        met: bool,
    ) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Broken };
        let (value, goal) = (value.to_string(), goal.to_owned());
        Self { what: what.into(), value, goal, verdict, key: None }
    }

    /// A speed, which a busy machine may miss.
    pub fn speed(what: impl Into<String>, value: impl fmt::Display, goal: &str, met: bool) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Missed };
        let (value, goal) = (value.to_string(), goal.to_owned());
        Self { what: what.into(), value, goal, verdict, key: None }
    }

    /// A fault that must have happened, or the run says nothing.
    pub fn fired(what: impl Into<String>, count: usize) -> Self {
        Self::meaningful(what, count, "> 0", count > 0)
    }

    /// What a run must come to, or it says nothing.
    pub fn meaningful(
        what: impl Into<String>,
        value: impl fmt::Display,
        goal: &str,
        met: bool,
    ) -> Self {
        let verdict = if met { Verdict::Met } else { Verdict::Void };
        Self { verdict, ..Self::promise(what, value, goal, met) }
    }

    /// It could not be carried through.
    pub fn failed(error: &dyn std::error::Error) -> Self {
        Self::promise(format!("error: {error}"), "", "", false).key("error")
    }

    /// Has this name in JSON.
    #[must_use]
    pub const fn key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    /// Nothing must be counted.
    pub fn none(what: impl Into<String>, count: usize) -> Self {
        Self::promise(what, count, "0", count == 0)
    }
}

/// Findings by their names, and whether all promises hold and everything was tried.
pub fn json(findings: &[Finding]) -> Map<String, Value> {
    let value = |text: &str| text.parse().map_or_else(|_| Value::from(text), Value::Number);
    let named = |it: &Finding| Some((it.key?.to_owned(), value(&it.value)));
    let mut all: Map<String, Value> = findings.iter().filter_map(named).collect();
    let is_valid = findings.iter().all(|it| !matches!(it.verdict, Verdict::Broken | Verdict::Void));
    all.insert("valid".to_owned(), is_valid.into());
    all
}

/// Findings as lines of padded columns.
pub fn text(title: &str, findings: &[Finding]) -> String {
    let width = |of: fn(&Finding) -> &str| {
        findings.iter().map(|finding| of(finding).chars().count()).max().unwrap_or(0)
    };
    let (what, value) = (width(|it| &it.what), width(|it| &it.value));
    let goal = width(|it| &it.goal);
    let mut lines = format!("\n{title}\n");
    for finding in findings {
        let verdict = match finding.verdict {
            Verdict::Told => "",
            Verdict::Met => "ok",
            Verdict::Broken => "BROKEN",
            Verdict::Missed => "MISSED",
            Verdict::Void => "INVALID",
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
        let well = [Finding::none("lost", 0).key("lost"), Finding::told("clock", "fast")];
        let broken = [Finding::fired("kills", 0).key("kills"), Finding::told("s", "x").key("s")];

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
            Finding::told("events", 1000),
            Finding::none("lost", 0),
            Finding::none("ghosts", 2),
            Finding::speed("ratio", "0.7", ">= 0.8", false),
            Finding::fired("kills", 0),
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
