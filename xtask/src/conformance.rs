//! The conformance suites, shown as a table of cases by backend.

mod nextest;
mod report;
mod suite;

use std::fs;

pub(crate) use self::{report::Totals, suite::Suite};
use crate::{Result, args::ConformanceOptions, services::Services, step::Steps, test};

pub(crate) fn run(options: &ConformanceOptions) -> Result {
    test::nextest(&mut Steps::default())?;
    let services = Services::up(options.servers)?;
    let mut suite = Suite::new(&["conformance"])?;
    services.announce_to(suite.command());
    let results = suite.run().map_err(|error| services.explain(&*error))?;
    let report = results.report();

    print!("\n{}", report.to_text());
    if let Some(file) = &options.markdown {
        fs::write(file, report.to_markdown())
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
    }
    report.verdict()
}
