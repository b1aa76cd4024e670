//! Fault injection: the scenarios of `nemesis`, on private servers.

use std::{env, process::Command};

use crate::{
    Result, args::NemesisOptions, command::cargo, metadata::Metadata, services::Services,
    step::Steps,
};

/// Allows scenarios to kill the servers, and names the program that restarts them.
const RESTART_SERVERS: &str = "PILLARBOX_RESTART_SERVERS";

/// `cargo xtask nemesis`.
pub(crate) fn run(options: &NemesisOptions) -> Result {
    let mut steps = Steps::default();
    steps.run("build", cargo("build --release -p nemesis --features crash-points"))?;
    let target = Metadata::load()?.target_directory()?;
    let mut services = Services::up(options.servers)?;

    let mut nemesis = Command::new(target.join("release/nemesis"));
    nemesis.arg("run").args(&options.words);
    services.announce_to(&mut nemesis);
    // A killed server is down for all its users.
    if services.are_ours_alone()? {
        nemesis.env(RESTART_SERVERS, env::current_exe()?);
    }
    steps.run("nemesis", nemesis).map_err(|error| services.explain(&*error))
}
