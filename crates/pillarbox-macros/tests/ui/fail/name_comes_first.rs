use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(version = 2, "order.placed")]
struct OrderPlaced;

fn main() {}
