use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed")]
struct OrderPlaced {
    #[event(id)]
    order_id: u64,
}

fn main() {}
