use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order\nplaced", aggregate = "or\u{7f}der")]
struct OrderPlaced;

fn main() {}
