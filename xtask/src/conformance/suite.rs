//! Running suites of the testkit to their end.

use std::{
    collections::BTreeMap,
    fs, io,
    io::{BufRead, BufReader, IsTerminal, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{
    nextest,
    nextest::{Outcome, Status},
    report::Report,
};
use crate::{
    Result,
    command::{by_hand, cargo},
    metadata::Metadata,
};

/// Progress is a line per this many cases where nobody watches it.
const PROGRESS_STEP: usize = 50;

/// A run of test binaries of the testkit.
#[derive(Debug)]
pub(crate) struct Suite {
    command: Command,
    /// Where the cases note that they were skipped, and why.
    skips: PathBuf,
}

/// How the cases of a run ended.
#[derive(Debug)]
pub(crate) struct Results {
    outcomes: BTreeMap<String, Outcome>,
    skips: String,
}

impl Suite {
    pub(crate) fn new(binaries: &[&str]) -> Result<Self> {
        let skips = Metadata::load()?.target_directory()?.join("conformance-skips.tsv");
        let mut command = cargo("nextest run -p pillarbox-testkit --all-features");
        command.args(binaries.iter().flat_map(|binary| ["--test", binary]));
        command.args(["--no-fail-fast", "--color", "never", "--status-level", "pass"]);
        command.env("PILLARBOX_SKIPS", &skips);
        Ok(Self { command, skips })
    }

    /// The command, for what only its caller knows.
    pub(crate) const fn command(&mut self) -> &mut Command {
        &mut self.command
    }

    pub(crate) fn run(mut self) -> Result<Results> {
        remove(&self.skips)?;
        let outcomes = outcomes(&mut self.command)?;
        // No file, no skips.
        let skips = fs::read_to_string(&self.skips).unwrap_or_default();
        Ok(Results { outcomes, skips })
    }
}

impl Results {
    pub(crate) fn report(&self) -> Report<'_> {
        Report::new(&self.outcomes, &self.skips)
    }
}

/// Runs the suites to their end and collects how each test ended.
fn outcomes(command: &mut Command) -> Result<BTreeMap<String, Outcome>> {
    let line = by_hand(command);
    let mut child = command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start `{line}`: {error}"))?;
    let lines = child.stderr.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
    let outcomes = collect(lines.map_while(io::Result::ok));
    let status = child.wait()?;

    let has_failure = outcomes.values().any(|outcome| *outcome == Outcome::Failed);
    if outcomes.is_empty() || (!status.success() && !has_failure) {
        return Err(
            format!("the suites did not run to their end ({status}); by hand:\n  {line}").into()
        );
    }
    Ok(outcomes)
}

/// Lines that are not about a test that passed are shown: builds, warnings and failures.
fn collect(lines: impl Iterator<Item = String>) -> BTreeMap<String, Outcome> {
    let mut outcomes = BTreeMap::new();
    for line in lines {
        let Some(Status { test, outcome }) = nextest::status(&line) else {
            eprintln!("{line}");
            continue;
        };
        if outcome == Outcome::Failed {
            eprintln!("{line}");
        }
        // A test that is tried again has a line for each try: the last one counts.
        outcomes.insert(test.to_owned(), outcome);
        progress(outcomes.len());
    }
    outcomes
}

fn progress(done: usize) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        // Whatever is printed next writes over the count. A terminal that is gone is no failure.
        let _ = write!(stderr, "{done} cases\r").and_then(|()| stderr.flush());
    } else if done.is_multiple_of(PROGRESS_STEP) {
        eprintln!("{done} cases");
    }
}

fn remove(file: &Path) -> Result {
    match fs::remove_file(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", file.display()).into())
        }
        _ => Ok(()),
    }
}
