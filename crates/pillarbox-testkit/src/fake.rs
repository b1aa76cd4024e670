//! Fakes that turn what a test cannot wait for into something it can say.

mod clock;
mod cut;
mod faulty;
mod step;

pub use self::clock::ManualClock;
pub use self::cut::cut;
pub use self::faulty::{Call, Fault, FaultyStore};
pub use self::step::{Side, Step};
