//! Fakes that turn what a test cannot wait for into something it can say.

mod clock;
mod cut;

pub use self::clock::ManualClock;
pub use self::cut::cut;
