//! The shows: real relay processes on private servers, and what it takes to break them.

use std::{env, process::Command};

use crate::{
    Result, args::NemesisOptions, command::cargo, metadata::Metadata, services::Services,
    step::Steps,
};

/// Tells that servers may be killed, and who starts them again.
const REVIVE: &str = "PILLARBOX_REVIVE";

/// `cargo xtask nemesis`.
pub(crate) fn run(options: &NemesisOptions) -> Result {
    let mut steps = Steps::default();
    steps.run("build", cargo("build --release -p nemesis --features crash-points"))?;
    let target = Metadata::load()?.target_directory()?;
    let mut services = Services::up(options.after)?;

    let mut nemesis = Command::new(target.join("release/nemesis"));
    nemesis.arg("show").args(&options.words);
    services.announce_to(&mut nemesis);
    // A server that is killed is killed for everybody.
    if services.are_ours_alone()? {
        nemesis.env(REVIVE, env::current_exe()?);
    }
    steps.run("nemesis", nemesis).map_err(|error| services.explain(&*error))
}
