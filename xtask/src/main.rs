//! The repository's own commands: `cargo xtask <command>`.
//!
//! Everything CI runs is a command here, so that a laptop can run the same.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a command line tool answers on stdout")]

mod args;
mod bench;
mod busy;
mod check;
mod command;
mod conformance;
mod fuzz;
mod metadata;
mod model;
mod mutants;
mod nemesis;
mod services;
mod shuttle;
mod step;
mod table;
mod test;
mod versions;

use std::{env, error::Error, process::ExitCode};

use crate::{args::Task, step::Steps};

/// A failure is read by a person and by nothing else, so it needs no type of its own.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match args::parse(env::args().skip(1)).and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result {
    match task {
        Task::Help => {
            print!("{}", args::HELP);
            Ok(())
        }
        Task::Check => Steps::default().conclude(check::run),
        Task::Test(options) => test::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Versions(options) => versions::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Nemesis(options) => nemesis::run(&options),
        Task::Model => model::run(),
        Task::Shuttle(words) => shuttle::run(&words),
        Task::Mutants(options) => mutants::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Services(action) => services::run(action),
    }
}
