//! The fuzzers: libFuzzer on everything that takes texts from outside.

mod report;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use self::report::{Report, grouped};
use crate::{
    Result,
    args::FuzzOptions,
    command::{by_hand, cargo, output, root},
    step::Steps,
    table::Table,
};

/// Sanitizers need a nightly compiler, and the code has nothing unsafe for them to look at.
const ON_STABLE: [&str; 2] = ["--sanitizer", "none"];

/// Longer inputs slow everything down; the targets make long texts of short ones.
const LONGEST: &str = "-max_len=20000";

/// What takes so many seconds on one input has no end.
const PATIENCE: &str = "-timeout=10";

/// `cargo xtask fuzz`.
pub(crate) fn run(options: &FuzzOptions) -> Result {
    let mut steps = Steps::default();
    cargo_fuzz(&mut steps)?;
    let targets = chosen(&seeds()?, &options.targets)?;
    let mut table = Table::new(Report::HEADER);
    let mut failures = Vec::new();
    for target in &targets {
        steps.run(&format!("build {target}"), fuzz("build", target))?;
    }
    for target in &targets {
        let report = steps.time(target, || attack(target, options.seconds))?;
        table.row(report.row(target));
        failures.extend(verdict(target, &report));
    }
    print!("{}", table.to_markdown());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n").into()) }
}

/// Installs cargo-fuzz if cargo does not have it.
fn cargo_fuzz(steps: &mut Steps) -> Result {
    if output(&mut cargo("fuzz --version")).is_ok() {
        return Ok(());
    }
    eprintln!("cargo-fuzz is missing: installing it with `cargo install --locked cargo-fuzz`");
    steps.run("install cargo-fuzz", cargo("install --locked cargo-fuzz"))
}

/// Writes the inputs to begin with, and says the names of all targets.
fn seeds() -> Result<Vec<String>> {
    let mut write = cargo("run -q -p pillarbox-fuzz-targets --");
    let names = output(write.arg(corpus()))?;
    Ok(names.lines().map(str::to_owned).collect())
}

fn chosen(all: &[String], wanted: &[String]) -> Result<Vec<String>> {
    if let Some(unknown) = wanted.iter().find(|name| !all.contains(name)) {
        return Err(format!("no target {unknown:?}; there are {}", all.join(", ")).into());
    }
    let is_wanted = |name: &&String| wanted.is_empty() || wanted.contains(*name);
    Ok(all.iter().filter(is_wanted).cloned().collect())
}

fn attack(target: &str, seconds: u64) -> Result<Report> {
    let before = inputs(target)?;
    let mut run = fuzz("run", target);
    run.arg(corpus().join(target)).arg("--");
    run.args([&format!("-max_total_time={seconds}"), "-print_final_stats=1", LONGEST, PATIENCE]);
    // Statistics and panics come on stderr.
    let ended = run.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    let found = inputs(target)?.into_iter().filter(|input| !before.contains(input)).collect();
    let report = Report::of(&said, found);
    if !ended.status.success() {
        eprint!("{said}");
    }
    // What fails without an input did not even start.
    if !ended.status.success() && report.found.is_empty() {
        return Err(format!("{}; by hand:\n  {}", ended.status, by_hand(&run)).into());
    }
    Ok(report)
}

/// What is wrong with a run, and what to type to see it again.
fn verdict(target: &str, report: &Report) -> Option<String> {
    if report.found.is_empty() {
        let nothing = report.runs == 0;
        return nothing.then(|| format!("{target}: no input was tried, so nothing is shown"));
    }
    let replay = |input: &PathBuf| {
        let mut run = fuzz("run", target);
        run.arg(input.strip_prefix(root()).unwrap_or(input));
        format!("{target} fails after {} runs:\n  {}", grouped(report.runs), by_hand(&run))
    };
    Some(report.found.iter().map(replay).collect::<Vec<_>>().join("\n"))
}

fn fuzz(action: &str, target: &str) -> Command {
    let mut command = cargo("fuzz");
    command.arg(action).args(ON_STABLE).arg(target);
    command
}

fn corpus() -> PathBuf {
    root().join("fuzz/corpus")
}

/// The inputs on which the target failed, of this run or earlier ones.
fn inputs(target: &str) -> Result<Vec<PathBuf>> {
    let place: &Path = &root().join("fuzz/artifacts").join(target);
    if !place.exists() {
        return Ok(Vec::new());
    }
    fs::read_dir(place)?.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_is_misspelt_is_refused() {
        let all = ["row".to_owned(), "url".to_owned()];

        assert_eq!(chosen(&all, &[]).unwrap(), all);
        assert_eq!(chosen(&all, &["url".to_owned()]).unwrap(), ["url"]);
        assert!(chosen(&all, &["urll".to_owned()]).is_err());
    }

    #[test]
    fn a_run_that_tried_nothing_is_a_failure() {
        let idle = Report::of("", Vec::new());
        let busy = Report::of("stat::number_of_executed_units: 7\n", Vec::new());

        assert!(verdict("row", &idle).is_some());
        assert_eq!(verdict("row", &busy), None);
    }

    #[test]
    fn a_failure_tells_how_to_see_it_again() {
        let input = root().join("fuzz/artifacts/row/crash-1");

        let said = verdict("row", &Report::of("#12\tNEW\n", vec![input])).unwrap();

        let replay = "cargo fuzz run --sanitizer none row fuzz/artifacts/row/crash-1";
        assert!(said.contains(replay), "{said}");
    }
}
