use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed")]
struct OrderPlaced {
    #[event(ident)]
    order_id: u64,
    #[event(version = 2)]
    customer: String,
    #[event(tenant = "shop")]
    shop: String,
    #[event("total")]
    total: u64,
    #[event()]
    note: String,
    #[event]
    paid: bool,
}

fn main() {}
