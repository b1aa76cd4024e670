//! The dispatcher in many orders of its threads' steps.

use crate::{Result, command::cargo, step::Steps};

/// `cargo xtask shuttle`. A workspace and a build of its own: Shuttle is in no other.
pub(crate) fn run(words: &[String]) -> Result {
    let mut run = cargo("run -q --locked --manifest-path schedules/Cargo.toml");
    run.args(["--target-dir", "target/shuttle", "--"]).args(words);
    Steps::default().run("shuttle", run)
}
