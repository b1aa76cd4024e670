use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
struct OrderPlaced {
    order_id: u64,
}

fn main() {}
