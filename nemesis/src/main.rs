//! `nemesis run` injects faults into real relay processes and checks the guarantees.

#![allow(clippy::print_stdout, reason = "a command line tool answers on stdout")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};
use nemesis::deployment::Server;
use nemesis::finding::{Finding, json, text};
use nemesis::process::Program;
use nemesis::role::{self, Role};
use nemesis::scenario::{RunOptions, Scale, Scenario};
use nemesis::{Result, relay};
use serde_json::Value;

/// Fault injection for Pillarbox: checks its guarantees with real processes and servers.
#[derive(Debug, Parser)]
enum Command {
    /// Runs scenarios and prints their findings.
    Run(RunArgs),
    /// One of the processes that a scenario starts.
    #[command(hide = true)]
    Process { role: Role, config: String },
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Runs the scenarios in small.
    #[arg(long)]
    quick: bool,
    /// Runs on this database only; may be repeated.
    #[arg(long, value_name = "NAME")]
    store: Vec<Server>,
    /// Seeds every random choice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How long `combined_faults` runs.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Limits `combined_faults` to kills of relays, until there were this many.
    #[arg(long, value_name = "N")]
    kills: Option<u64>,
    /// How many relays `combined_faults` starts.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=8))]
    relays: Option<u64>,
    /// Writes the findings to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The scenarios; all by default, or `combined_faults` with --seconds or --kills.
    scenario: Vec<Scenario>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Command::parse()).await {
        Ok(code) => code,
        Err(error) => {
            let mut message = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                message = format!("{message}: {error}");
                cause = error.source();
            }
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode> {
    let (role, config) = match command {
        Command::Run(args) => return run_scenarios(args).await,
        Command::Process { role, config } => (role, serde_json::from_str(&config)?),
    };
    match role {
        Role::Relay => {
            tracing_subscriber::fmt().with_writer(std::io::stderr).init();
            relay::run(config).await?;
        }
        Role::Write => relay::write(config).await?,
        role => role::run(role, config).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn run_scenarios(args: RunArgs) -> Result<ExitCode> {
    let mut exit_code = ExitCode::SUCCESS;
    let mut reports = Vec::new();
    for scenario in args.scenarios() {
        for server in args.servers().into_iter().filter(|server| scenario.is_for(*server)) {
            let Some(base) = server.base() else { continue };
            let options = RunOptions {
                server,
                base,
                scale: if args.quick { Scale::Quick } else { Scale::Full },
                seed: args.seed,
                seconds: args.seconds,
                kills: args.kills,
                relays: args.relays,
                program: Program::new(std::env::current_exe()?),
            };
            let found = scenario.run(&options).await;
            let found = found.unwrap_or_else(|error| vec![Finding::failed(&*error)]);
            let title = format!("{}, {}, seed {}", scenario.name(), server.name(), args.seed);
            print!("{}", text(&title, &found));
            let mut report = json(&found);
            report.insert("scenario".to_owned(), scenario.name().into());
            report.insert("store".to_owned(), server.name().into());
            report.insert("seed".to_owned(), args.seed.into());
            reports.push(Value::from(report));
            if found.iter().any(|finding| finding.verdict.is_bad()) {
                exit_code = ExitCode::FAILURE;
            }
        }
    }
    if let Some(file) = &args.json {
        // One report is an object, several are a list.
        let one = (reports.len() == 1).then(|| reports.remove(0));
        let all = one.unwrap_or(Value::from(reports));
        std::fs::write(file, serde_json::to_string_pretty(&all)? + "\n")?;
    }
    Ok(exit_code)
}

impl RunArgs {
    fn servers(&self) -> Vec<Server> {
        if self.store.is_empty() { Server::ALL.to_vec() } else { self.store.clone() }
    }

    fn scenarios(&self) -> Vec<Scenario> {
        if !self.scenario.is_empty() {
            return self.scenario.clone();
        }
        if self.seconds.is_some() || self.kills.is_some() {
            return vec![Scenario::CombinedFaults];
        }
        Scenario::all().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> RunArgs {
        match Command::try_parse_from(["nemesis", "run"].into_iter().chain(line.split(' '))) {
            Ok(Command::Run(args)) => args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_duration_or_a_number_of_kills_selects_combined_faults() {
        assert_eq!(parsed("--seconds 5").scenarios(), [Scenario::CombinedFaults]);
        assert_eq!(parsed("--kills 5 takeover").scenarios(), [Scenario::Takeover]);
        assert_eq!(parsed("--quick").scenarios().len(), Scenario::all().len());
    }

    #[test]
    fn stores_can_be_repeated_and_default_to_all() {
        let two = parsed("--store sqlite --store mysql");

        assert_eq!(two.servers(), [Server::Sqlite, Server::Mysql]);
        assert_eq!(parsed("--quick").servers(), Server::ALL);
    }
}
