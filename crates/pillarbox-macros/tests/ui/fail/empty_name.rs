use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("", aggregate = "")]
struct OrderPlaced;

fn main() {}
