use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", free)]
struct OrderPlaced {
    #[event(key)]
    customer: String,
}

fn main() {}
