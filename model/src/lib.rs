//! The protocol as models that are explored whole: every order of steps, every place for a fault.
//!
//! Each model is the protocol of one part in a few words, with its rules as switches. As they are
//! kept, the promises hold in every state that can be reached, and from each of them everything can
//! still be delivered. With one rule broken, a promise breaks: a model that finds nothing is none.
//!
//! [`runs`] lists them all; `cargo xtask model` explores them and prints what was found.

mod explore;
mod inbox;
mod relay;
mod row;
mod run;
mod waiting;

pub use run::{Expected, Outcome, Run, runs};
