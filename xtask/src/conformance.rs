//! The conformance suites, shown as a table of cases by backend.

mod nextest;
mod report;

use std::{
    collections::BTreeMap,
    fs, io,
    io::{BufRead, BufReader, IsTerminal, Write},
    path::Path,
    process::{Command, Stdio},
};

use self::{
    nextest::{Outcome, Status},
    report::Report,
};
use crate::{
    Result,
    args::ConformanceOptions,
    command::{by_hand, cargo},
    metadata::Metadata,
    services::Services,
    step::Steps,
    test,
};

/// Progress is a line per this many cases where nobody watches it.
const PROGRESS_STEP: usize = 50;

pub(crate) fn run(options: &ConformanceOptions) -> Result {
    test::nextest(&mut Steps::default())?;
    let services = Services::up(options.after)?;
    let skips = Metadata::load()?.target_directory()?.join("conformance-skips.tsv");
    remove(&skips)?;

    let mut command = command(&skips);
    services.announce_to(&mut command);
    let outcomes = outcomes(&mut command).map_err(|error| services.explain(&*error))?;
    // No file, no skips.
    let skips = fs::read_to_string(&skips).unwrap_or_default();
    let report = Report::new(&outcomes, &skips);

    print!("\n{}", report.to_text());
    if let Some(file) = &options.markdown {
        fs::write(file, report.to_markdown())
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    report.verdict()
}

fn command(skips: &Path) -> Command {
    let mut command = cargo("nextest run -p pillarbox-testkit --all-features --test conformance");
    command.args(["--no-fail-fast", "--color", "never", "--status-level", "pass"]);
    command.env("PILLARBOX_SKIPS", skips);
    command
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
