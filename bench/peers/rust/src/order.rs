//! What is asked for, and the event that goes everywhere.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

#[derive(Debug, Deserialize)]
pub(crate) struct Order {
    pub(crate) peer: String,
    pub(crate) verb: Verb,
    pub(crate) url: String,
    pub(crate) count: u32,
    #[serde(default)]
    pub(crate) note: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verb {
    Fill,
    Drain,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) order_id: u32,
    pub(crate) note: String,
}

impl Order {
    /// The events to fill with, numbered from 1, this many at a time.
    pub(crate) fn chunks(&self, size: usize) -> impl Iterator<Item = Vec<Placed>> {
        let numbers: Vec<u32> = (1..=self.count).collect();
        let placed = |order_id: &u32| Placed { order_id: *order_id, note: self.note.clone() };
        let chunks: Vec<_> =
            numbers.chunks(size).map(|chunk| chunk.iter().map(placed).collect()).collect();
        chunks.into_iter()
    }
}

/// The answer to `fill`.
pub(crate) fn filled(answer: &HashMap<&str, &str>) -> crate::Result {
    println!("{}", serde_json::to_string(answer)?);
    Ok(())
}
