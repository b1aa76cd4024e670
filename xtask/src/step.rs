//! Running steps one after the other, with their times.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use crate::{Result, command::by_hand, table::Table};

/// The steps of one run, in the order they ran.
#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<Step>);

#[derive(Debug)]
struct Step {
    name: String,
    verdict: Verdict,
    took: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
}

impl Steps {
    /// Runs a command with its output shown; a failure says how to run it by hand.
    pub(crate) fn run(&mut self, name: &str, mut command: Command) -> Result {
        let line = by_hand(&command);
        self.time(name, || {
            let status = command.status().map_err(|error| format!("cannot start: {error}"));
            match status? {
                status if status.success() => Ok(()),
                status => Err(format!("{status}").into()),
            }
        })
        .map_err(|error| format!("{name} failed ({error}); by hand:\n  {line}").into())
    }

    /// Does something that is not a single command.
    pub(crate) fn time<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        eprintln!("==> {name}");
        let (result, took) = timed(work);
        let verdict = if result.is_ok() { Verdict::Passed } else { Verdict::Failed };
        eprintln!("==> {name}: {} ({})", verdict.word(), seconds(took));
        self.0.push(Step { name: name.to_owned(), verdict, took });
        result
    }

    /// Notes a step that did not run.
    pub(crate) fn skip(&mut self, name: &str, reason: &str) {
        eprintln!("==> {name}: skipped: {reason}");
        let verdict = Verdict::Skipped;
        self.0.push(Step { name: name.to_owned(), verdict, took: Duration::ZERO });
    }

    /// Runs all of it and prints the summary, whatever the outcome.
    pub(crate) fn conclude(mut self, run: impl FnOnce(&mut Self) -> Result) -> Result {
        let result = run(&mut self);
        print!("\n{}", self.summary().to_text());
        result
    }

    fn summary(&self) -> Table {
        let mut table = Table::new(["step", "result", "time"]);
        for step in &self.0 {
            let time = match step.verdict {
                Verdict::Skipped => String::new(),
                Verdict::Passed | Verdict::Failed => seconds(step.took),
            };
            table.row([step.name.clone(), step.verdict.word().to_owned(), time]);
        }
        let total = self.0.iter().map(|step| step.took).sum();
        table.row(["total".to_owned(), String::new(), seconds(total)]);
        table
    }
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::Skipped => "skipped",
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a person waits for this, and no test turns it")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::cargo;

    #[test]
    fn a_failed_step_tells_the_command_to_run_by_hand() {
        let mut steps = Steps::default();

        let error = steps.run("nonsense", cargo("--no-such-option")).unwrap_err();

        assert!(error.to_string().ends_with("by hand:\n  cargo --no-such-option"), "{error}");
        assert!(steps.summary().to_text().contains("FAILED"));
    }

    #[test]
    fn a_skipped_step_is_in_the_summary_without_a_time() {
        let mut steps = Steps::default();

        steps.skip("deny", "not installed");

        assert!(steps.summary().to_text().contains("deny   skipped\n"));
    }
}
