//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// The repository's own commands: checks, tests, benchmarks and fault injection.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) task: Task,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Task {
    /// Formatting, lints, docs, each feature alone, layering, crash points and licenses.
    Check,
    /// Runs the checks and all tests, or only the tests whose name contains one of the words.
    Test(TestOptions),
    /// Runs the conformance suites and prints a table of cases by backend.
    Conformance(ConformanceOptions),
    /// Runs the conformance and relay suites on newer servers and writes docs/compatibility.md.
    Versions(VersionsOptions),
    /// Measures performance beside hand-written statements, another commit or other systems.
    Bench(BenchOptions),
    /// Injects faults into real processes and reports losses, duplicates and slowdowns.
    #[command(disable_help_flag = true)]
    Nemesis(NemesisOptions),
    /// Explores the protocol's models in every order of steps, as they are and with each rule broken.
    Model,
    /// Runs the dispatcher in many thread interleavings (100 000 in all).
    #[command(disable_help_flag = true)]
    Shuttle(ShuttleOptions),
    /// Builds curated mutants and runs the test that must catch each.
    Mutants(MutantsOptions),
    /// Fuzzes the parsers of untrusted input.
    Fuzz(FuzzOptions),
    /// Manages the private database servers of the tests.
    Services(ServicesOptions),
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct TestOptions {
    /// Runs a busy loop on each core beside the tests.
    #[arg(long)]
    pub(crate) busy: bool,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Parts of test names; with them, checks and doctests are skipped.
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ConformanceOptions {
    /// Writes the table to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct VersionsOptions {
    /// Runs on this server only.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct BenchOptions {
    /// One of store, relay, peers (other systems, installed below target/) and growth; store and
    /// relay by default.
    #[arg(long, value_name = "NAME")]
    pub(crate) only: Option<String>,
    /// Smaller tables and fewer rounds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Writes the figures to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Adds the figures of this file to docs/benchmarks.json, and renders docs/benchmarks.md and
    /// docs/plots; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Vec<PathBuf>,
    /// Alternates with this commit: 9 rounds in quick form, or 3 with --quick.
    #[arg(long, value_name = "COMMIT")]
    pub(crate) against: Option<String>,
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// Stores, or parts of the names of cases.
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct NemesisOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// The options of `nemesis run`; `cargo run -p nemesis -- run --help` lists them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ShuttleOptions {
    /// [--schedules N] [--seed N] [--block N] [word…], as the program reads them.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<String>,
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct MutantsOptions {
    #[command(flatten)]
    pub(crate) servers: ServerOptions,
    /// One mutant; all by default.
    pub(crate) name: Option<String>,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct FuzzOptions {
    /// Seconds per target.
    // libFuzzer takes 0 for ever.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// The targets; all by default.
    pub(crate) targets: Vec<String>,
}

#[derive(Debug, PartialEq, Args)]
pub(crate) struct ServicesOptions {
    #[arg(value_enum, default_value_t = Action::Status)]
    pub(crate) action: Action,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Args)]
pub(crate) struct ServerOptions {
    /// Leaves the private servers running.
    #[arg(long)]
    pub(crate) keep: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Action {
    /// Starts the servers, leaves them running and prints what to export.
    Up,
    /// Stops the servers.
    Down,
    /// Shows which servers run.
    Status,
    /// Starts servers that were killed.
    Restart,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task, clap::Error> {
        let words = std::iter::once("cargo xtask").chain(line.split_whitespace());
        Cli::try_parse_from(words).map(|cli| cli.task)
    }

    #[test]
    fn names_and_keep_come_in_any_order() {
        let Task::Test(options) = parsed("test claim --keep settle").unwrap() else {
            panic!("not a test task");
        };

        assert_eq!(options.names, ["claim", "settle"]);
        assert!(options.servers.keep && !options.busy);
        assert!(parsed("test --kepe").is_err());
    }

    #[test]
    fn a_bench_takes_words_among_its_options() {
        let Task::Bench(options) = parsed("bench drain --quick --json out.json sqlite").unwrap()
        else {
            panic!("not a bench task");
        };

        assert_eq!(options.words, ["drain", "sqlite"]);
        assert!(options.quick);
        assert_eq!(options.json, Some("out.json".into()));
    }

    #[test]
    fn nemesis_and_shuttle_parse_their_own_options() {
        let Task::Nemesis(options) =
            parsed("nemesis --keep --store sqlite takeover --help").unwrap()
        else {
            panic!("not a nemesis task");
        };

        assert_eq!(options.words, ["--store", "sqlite", "takeover", "--help"]);
        assert!(options.servers.keep);
        assert!(
            matches!(parsed("shuttle --seed 7 wake"), Ok(Task::Shuttle(it)) if it.words.len() == 3)
        );
    }

    #[test]
    fn fuzz_targets_run_for_a_minute_by_default() {
        let options = |seconds, targets: &[&str]| {
            let targets = targets.iter().map(|target| (*target).to_owned()).collect();
            Task::Fuzz(FuzzOptions { seconds, targets })
        };

        assert_eq!(parsed("fuzz").unwrap(), options(60, &[]));
        assert_eq!(parsed("fuzz row --seconds 5 url").unwrap(), options(5, &["row", "url"]));
        assert!(parsed("fuzz --seconds 0").is_err());
    }

    #[test]
    fn services_without_an_action_shows_the_status() {
        let status = ServicesOptions { action: Action::Status };

        assert_eq!(parsed("services").unwrap(), Task::Services(status));
    }
}
