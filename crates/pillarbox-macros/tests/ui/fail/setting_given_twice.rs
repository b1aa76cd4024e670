use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", version = 1, version = 2, aggregate = "a", aggregate = "b", free, free)]
struct OrderPlaced;

fn main() {}
