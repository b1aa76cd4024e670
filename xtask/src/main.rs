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

use std::{error::Error, process::ExitCode};

use clap::Parser as _;

use crate::{
    args::{Cli, Task},
    step::Steps,
};

/// Any failure: it is shown to a person and not matched on.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result {
    match task {
        Task::Check => Steps::default().conclude(check::run),
        Task::Test(options) => test::run(&options),
        Task::Conformance(options) => conformance::run(&options),
        Task::Versions(options) => versions::run(&options),
        Task::Bench(options) => bench::run(&options),
        Task::Nemesis(options) => nemesis::run(&options),
        Task::Model => model::run(),
        Task::Shuttle(options) => shuttle::run(&options.words),
        Task::Mutants(options) => mutants::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Services(options) => services::run(options.action),
    }
}
