use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: Option<u64>,
    #[event(key)]
    customer: std::option::Option<String>,
}

fn main() {}
