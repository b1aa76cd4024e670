//! What happens to an order. The strings are the contract with the world.

use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
pub(crate) struct OrderPlaced {
    #[event(id)]
    pub(crate) order_id: i64,
    pub(crate) email: String,
}

#[derive(Serialize, Deserialize, Event)]
#[event("order.cancelled", aggregate = "order")]
pub(crate) struct OrderCancelled {
    #[event(id)]
    pub(crate) order_id: i64,
}
