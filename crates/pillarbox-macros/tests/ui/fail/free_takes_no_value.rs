use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", free = true)]
struct OrderPlaced;

fn main() {}
