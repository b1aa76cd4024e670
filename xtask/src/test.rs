//! Every test of the workspace, against real servers.

use std::thread;

use crate::{
    Result,
    args::TestOptions,
    busy::Busy,
    check,
    command::{cargo, output},
    services::Services,
    step::Steps,
};

const NEXTEST: &str = "nextest run --workspace --all-features";

pub(crate) fn run(options: &TestOptions) -> Result {
    Steps::default().conclude(|steps| {
        check(steps, options)?;
        nextest(steps)?;
        let services = steps.time("services", || Services::up(options.servers))?;
        tests(steps, options, &services)
    })
}

fn check(steps: &mut Steps, options: &TestOptions) -> Result {
    if options.names.is_empty() {
        return check::without_tests(steps);
    }
    steps.skip("check", "test names were given; `cargo xtask check` runs it");
    Ok(())
}

/// Installs the test runner if cargo does not have it.
pub(crate) fn nextest(steps: &mut Steps) -> Result {
    if output(&mut cargo("nextest --version")).is_ok() {
        return Ok(());
    }
    eprintln!(
        "cargo-nextest is missing: installing it with `cargo install --locked cargo-nextest`"
    );
    steps.run("install nextest", cargo("install --locked cargo-nextest"))
}

fn tests(steps: &mut Steps, options: &TestOptions, services: &Services) -> Result {
    let mut nextest = cargo(NEXTEST);
    // Two slots per core, as the profile expects.
    let slots = 2 * thread::available_parallelism().map_or(1, usize::from);
    nextest.args(["--profile", "xtask", "--test-threads", &slots.to_string()]);
    nextest.args(&options.names);
    services.announce_to(&mut nextest);
    // Only the tests run beside busy loops, not their build.
    let _busy = if options.busy {
        steps.run("build tests", cargo(&format!("{NEXTEST} --no-run")))?;
        Some(Busy::start())
    } else {
        None
    };
    let name = if options.busy { "tests, busy" } else { "tests" };
    steps.run(name, nextest).map_err(|error| services.explain(&*error))?;

    if !options.names.is_empty() {
        steps.skip("doctests", "test names were given");
        return Ok(());
    }
    let mut doctests = cargo("test --doc --workspace --all-features");
    services.announce_to(&mut doctests);
    steps.run("doctests", doctests).map_err(|error| services.explain(&*error))
}
