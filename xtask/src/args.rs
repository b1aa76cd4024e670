//! What was asked for, read from the command line.

use std::path::PathBuf;

use crate::Result;

pub(crate) const HELP: &str = "\
usage: cargo xtask <command>

  check                                   format, lints, docs, each feature alone, module levels, licenses
  test [--keep] [--busy] [name…]          check and every test; with names only the tests that match;
                                          with --busy while a spinning thread for each core competes
                                          with them
  conformance [--keep] [--markdown FILE]  the conformance suites, as a table of cases by backend
  versions [--only NAME]                  conformance and relay suites on newer servers, fetched from
                                          Debian; writes docs/compatibility.md
  bench [--only NAME] [--quick] [--json FILE] [word…]
                                          speed beside hand-written statements; words: a store, or
                                          a part of a case's name. Only by name: `peers`, beside
                                          other systems, which it installs below target/, and
                                          `growth`, for the plots
  bench --against COMMIT [--only NAME] [--quick] [word…]
                                          this tree and another commit by turns, in quick form, with
                                          the spread of the other commit against itself; 9 turns, or
                                          3 with --quick
  bench --report FILE [--report FILE…]    adds such JSON to docs/benchmarks.json, the last
                                          figure of each case, and writes docs/benchmarks.md
                                          and docs/plots
  nemesis [--quick] [--store NAME] [--seed N] [--seconds N] [--kills N] [--relays N]
          [--json FILE] [show…]           kills, pauses, restarts, slow and broken listeners, clocks
                                          apart, a pooler, a network that fails, a server that is
                                          killed, a full disk, a crash at every step: what is lost,
                                          what comes twice, what slows. With --seconds a storm of all
                                          of it for so long, with --kills one of that many kills
  model                                   the protocol in every order of steps, as it is and with each
                                          rule broken
  shuttle [--schedules N] [--seed N] [--block N] [word…]
                                          the dispatcher in many orders of its threads' steps, 100 000
                                          in all; words: a part of a case's name
  mutants [name]                          builds that are broken on purpose, and what notices them
  fuzz [--seconds N] [target…]            texts from outside, changed by libFuzzer for so long each
                                          (60 s)
  services [up|down|status|revive]        the servers of the tests; `up` prints what to export,
                                          `revive` starts again what was killed

  --keep    leave the servers running at the end
";

/// One command with its options.
#[derive(Debug, PartialEq)]
pub(crate) enum Task {
    Help,
    Check,
    Test(TestOptions),
    Conformance(ConformanceOptions),
    Versions(VersionsOptions),
    Bench(BenchOptions),
    Nemesis(NemesisOptions),
    Model,
    /// Options and cases, as the program itself reads them.
    Shuttle(Vec<String>),
    Mutants(MutantsOptions),
    Fuzz(FuzzOptions),
    Services(Action),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct TestOptions {
    pub(crate) names: Vec<String>,
    /// Whether spinning threads compete with the tests for every core.
    pub(crate) busy: bool,
    pub(crate) after: After,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ConformanceOptions {
    pub(crate) markdown: Option<PathBuf>,
    pub(crate) after: After,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct VersionsOptions {
    pub(crate) only: Option<String>,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct BenchOptions {
    pub(crate) only: Option<String>,
    pub(crate) quick: bool,
    pub(crate) json: Option<PathBuf>,
    pub(crate) report: Vec<PathBuf>,
    /// Another commit to measure beside this tree.
    pub(crate) against: Option<String>,
    pub(crate) words: Vec<String>,
    pub(crate) after: After,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct NemesisOptions {
    /// Options and shows, as the program itself reads them.
    pub(crate) words: Vec<String>,
    pub(crate) after: After,
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct MutantsOptions {
    /// One, or all.
    pub(crate) names: Vec<String>,
    pub(crate) after: After,
}

#[derive(Debug, PartialEq)]
pub(crate) struct FuzzOptions {
    /// For each target.
    pub(crate) seconds: u64,
    /// Some, or all.
    pub(crate) targets: Vec<String>,
}

/// What happens to the servers when the run ends.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) enum After {
    #[default]
    Stop,
    Keep,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Action {
    Up,
    Down,
    Status,
    Revive,
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Task> {
    let Some(command) = args.next() else {
        return Ok(Task::Help);
    };
    match command.as_str() {
        "help" | "-h" | "--help" => Ok(Task::Help),
        "check" => nothing_more(args).map(|()| Task::Check),
        "test" => test(args).map(Task::Test),
        "conformance" => conformance(args).map(Task::Conformance),
        "versions" => versions(args).map(Task::Versions),
        "bench" => bench(args).map(Task::Bench),
        "nemesis" => Ok(Task::Nemesis(nemesis(args))),
        "model" => nothing_more(args).map(|()| Task::Model),
        "shuttle" => Ok(Task::Shuttle(args.collect())),
        "mutants" => mutants(args).map(Task::Mutants),
        "fuzz" => fuzz(args).map(Task::Fuzz),
        "services" => services(args).map(Task::Services),
        other => Err(unknown("command", other)),
    }
}

fn test(args: impl Iterator<Item = String>) -> Result<TestOptions> {
    let mut options = TestOptions::default();
    for arg in args {
        match arg.as_str() {
            "--keep" => options.after = After::Keep,
            "--busy" => options.busy = true,
            flag if flag.starts_with('-') => return Err(unknown("option", flag)),
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}

fn mutants(args: impl Iterator<Item = String>) -> Result<MutantsOptions> {
    let mut options = MutantsOptions::default();
    for arg in args {
        match arg.as_str() {
            "--keep" => options.after = After::Keep,
            flag if flag.starts_with('-') => return Err(unknown("option", flag)),
            _ => options.names.push(arg),
        }
    }
    Ok(options)
}

fn conformance(mut args: impl Iterator<Item = String>) -> Result<ConformanceOptions> {
    let mut options = ConformanceOptions::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--keep" => options.after = After::Keep,
            "--markdown" => {
                let file = args.next().ok_or("--markdown needs a file: --markdown FILE")?;
                options.markdown = Some(file.into());
            }
            other => return Err(unknown("option", other)),
        }
    }
    Ok(options)
}

fn versions(mut args: impl Iterator<Item = String>) -> Result<VersionsOptions> {
    let mut options = VersionsOptions::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => {
                options.only = Some(args.next().ok_or("--only needs a name: --only NAME")?);
            }
            other => return Err(unknown("option", other)),
        }
    }
    Ok(options)
}

fn bench(mut args: impl Iterator<Item = String>) -> Result<BenchOptions> {
    let mut options = BenchOptions::default();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--keep" => options.after = After::Keep,
            "--quick" => options.quick = true,
            "--only" => {
                options.only = Some(args.next().ok_or("--only needs a name: --only NAME")?);
            }
            "--json" => {
                let file = args.next().ok_or("--json needs a file: --json FILE")?;
                options.json = Some(file.into());
            }
            "--against" => {
                let commit = args.next().ok_or("--against needs a commit: --against COMMIT")?;
                options.against = Some(commit);
            }
            "--report" => {
                let file = args.next().ok_or("--report needs a file: --report FILE")?;
                options.report.push(file.into());
            }
            flag if flag.starts_with('-') => return Err(unknown("option", flag)),
            _ => options.words.push(arg),
        }
    }
    Ok(options)
}

fn nemesis(args: impl Iterator<Item = String>) -> NemesisOptions {
    let mut options = NemesisOptions::default();
    for arg in args {
        match arg.as_str() {
            "--keep" => options.after = After::Keep,
            _ => options.words.push(arg),
        }
    }
    options
}

fn fuzz(mut args: impl Iterator<Item = String>) -> Result<FuzzOptions> {
    let mut options = FuzzOptions { seconds: 60, targets: Vec::new() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--seconds" => {
                let seconds = args.next().and_then(|seconds| seconds.parse().ok());
                // libFuzzer takes 0 for ever.
                let seconds = seconds.filter(|seconds| *seconds > 0);
                options.seconds = seconds.ok_or("--seconds needs a number: --seconds N")?;
            }
            flag if flag.starts_with('-') => return Err(unknown("option", flag)),
            _ => options.targets.push(arg),
        }
    }
    Ok(options)
}

fn services(mut args: impl Iterator<Item = String>) -> Result<Action> {
    let action = match args.next().as_deref() {
        Some("up") => Action::Up,
        Some("down") => Action::Down,
        Some("revive") => Action::Revive,
        Some("status") | None => Action::Status,
        Some(other) => return Err(unknown("action", other)),
    };
    nothing_more(args).map(|()| action)
}

fn nothing_more(mut args: impl Iterator<Item = String>) -> Result {
    match args.next() {
        Some(arg) => Err(unknown("option", &arg)),
        None => Ok(()),
    }
}

fn unknown(what: &str, arg: &str) -> Box<dyn std::error::Error> {
    format!("unknown {what} `{arg}`; see `cargo xtask --help`").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Task> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn no_command_asks_for_help() {
        assert_eq!(parsed("").unwrap(), Task::Help);
    }

    #[test]
    fn names_and_keep_come_in_any_order() {
        let Task::Test(options) = parsed("test claim --keep settle").unwrap() else {
            panic!("not a test task");
        };

        assert_eq!(options.names, ["claim", "settle"]);
        assert_eq!(options.after, After::Keep);
        assert!(!options.busy);
    }

    #[test]
    fn only_tests_can_run_on_a_busy_machine() {
        let Task::Test(options) = parsed("test --busy claim").unwrap() else {
            panic!("not a test task");
        };

        assert!(options.busy);
        assert_eq!(options.names, ["claim"]);
        assert!(parsed("mutants --busy").is_err());
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
    fn a_bench_may_name_a_commit_to_be_measured_beside() {
        let Task::Bench(options) = parsed("bench --only relay --against 152958a drain").unwrap()
        else {
            panic!("not a bench task");
        };

        assert_eq!(options.against.as_deref(), Some("152958a"));
        assert_eq!(options.words, ["drain"]);
        let error = parsed("bench --against").unwrap_err();
        assert_eq!(error.to_string(), "--against needs a commit: --against COMMIT");
    }

    #[test]
    fn markdown_needs_its_file() {
        let error = parsed("conformance --markdown").unwrap_err();

        assert_eq!(error.to_string(), "--markdown needs a file: --markdown FILE");
    }

    #[test]
    fn versions_are_all_or_the_one_that_is_named() {
        let only = Some("mysql-9".to_owned());

        assert_eq!(parsed("versions").unwrap(), Task::Versions(VersionsOptions { only: None }));
        assert_eq!(
            parsed("versions --only mysql-9").unwrap(),
            Task::Versions(VersionsOptions { only })
        );
        assert!(parsed("versions --only").is_err());
    }

    #[test]
    fn a_nemesis_reads_its_words_itself() {
        let Task::Nemesis(options) = parsed("nemesis faults --keep --store sqlite").unwrap() else {
            panic!("not a nemesis task");
        };

        assert_eq!(options.words, ["faults", "--store", "sqlite"]);
        assert_eq!(options.after, After::Keep);
    }

    #[test]
    fn fuzzers_run_for_a_minute_unless_said() {
        let options = |seconds, targets: &[&str]| {
            let targets = targets.iter().map(|target| (*target).to_owned()).collect();
            Task::Fuzz(FuzzOptions { seconds, targets })
        };

        assert_eq!(parsed("fuzz").unwrap(), options(60, &[]));
        assert_eq!(parsed("fuzz row --seconds 5 url").unwrap(), options(5, &["row", "url"]));
        assert!(parsed("fuzz --seconds 0").is_err());
    }

    #[test]
    fn an_unknown_option_is_named() {
        let error = parsed("test --kepe").unwrap_err();

        assert!(error.to_string().contains("unknown option `--kepe`"));
    }

    #[test]
    fn services_without_an_action_shows_the_status() {
        assert_eq!(parsed("services").unwrap(), Task::Services(Action::Status));
    }
}
