//! Explores all runs, or those whose model or name contains the first argument, and prints a table.

use std::process::ExitCode;

use pillarbox_model::{Expected, runs};

#[expect(clippy::print_stdout, reason = "the table is what it is run for")]
fn main() -> ExitCode {
    println!("| model | rules | states | found | s |");
    println!("| --- | --- | --- | --- | --- |");
    let mut all_as_expected = true;
    let word = std::env::args().nth(1).unwrap_or_default();
    for run in
        runs().into_iter().filter(|run| [run.model, run.name].iter().any(|it| it.contains(&word)))
    {
        let outcome = run.explore();
        let is_as_expected = run.is_as_expected(&outcome);
        all_as_expected &= is_as_expected;
        let found = match run.expected {
            Expected::Holds => "all promises hold".to_owned(),
            Expected::Breaks(promise) => format!("breaks: {promise}"),
            Expected::Stuck => "not everything is delivered".to_owned(),
        };
        let found = if is_as_expected { found } else { format!("NOT AS EXPECTED: {outcome:?}") };
        let (states, took) = (outcome.states, outcome.took.as_secs_f64());
        println!("| {} | {} | {states} | {found} | {took:.1} |", run.model, run.name);
    }
    if all_as_expected { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
