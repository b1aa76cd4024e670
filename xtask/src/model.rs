//! The models of the protocol, explored whole.

use crate::{Result, command::cargo, step::Steps};

/// `cargo xtask model`.
pub(crate) fn run() -> Result {
    Steps::default().run("model", cargo("run --release -q -p pillarbox-model"))
}
