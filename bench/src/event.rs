//! The event that is emitted everywhere: about 200 bytes of payload, ordered by its order.

use pillarbox::Event;
use serde::{Deserialize, Serialize};

/// Brings the payload to about 200 bytes.
pub(crate) const NOTE: &str = "a note of one hundred and fifty bytes, as an order may carry one: \
    please ring twice, leave the parcel with the neighbour on the left, and mind the dog. Thanks";

/// How many keys the rows of a backlog are spread over.
pub(crate) const KEYS: u32 = 10_000;

#[derive(Debug, Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
pub(crate) struct OrderPlaced {
    #[event(id)]
    pub(crate) order_id: i64,
    pub(crate) note: String,
}

impl OrderPlaced {
    pub(crate) fn new(order_id: i64) -> Self {
        Self { order_id, note: NOTE.to_owned() }
    }
}
