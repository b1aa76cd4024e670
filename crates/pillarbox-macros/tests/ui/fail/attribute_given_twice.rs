use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed")]
#[event(version = 2)]
struct OrderPlaced;

fn main() {}
