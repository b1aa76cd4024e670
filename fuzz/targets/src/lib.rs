//! What is fuzzed: everything that takes texts from outside, and what must hold of each.
//!
//! A target takes any bytes and panics when a promise is broken. libFuzzer calls it from
//! `fuzz/fuzz_targets`, and the tests here feed it with seeds and changed seeds, so that it does not
//! rot.

pub mod context;
pub mod envelope;
mod field;
pub mod headers;
pub mod page;
pub mod pattern;
pub mod row;
pub mod settings;
mod sound;
pub mod url;

/// One way in from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name of its program.
    pub name: &'static str,
    /// Panics when a promise is broken.
    pub run: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All of them.
pub const TARGETS: [Target; 8] = [
    Target { name: "envelope", run: envelope::run, seeds: envelope::seeds },
    Target { name: "headers", run: headers::run, seeds: headers::seeds },
    Target { name: "row", run: row::run, seeds: row::seeds },
    Target { name: "page", run: page::run, seeds: page::seeds },
    Target { name: "url", run: url::run, seeds: url::seeds },
    Target { name: "settings", run: settings::run, seeds: settings::seeds },
    Target { name: "context", run: context::run, seeds: context::seeds },
    Target { name: "pattern", run: pattern::run, seeds: pattern::seeds },
];
