use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: u64,
    #[event(id)]
    customer: String,
    #[event(tenant, tenant)]
    shop: String,
}

fn main() {}
