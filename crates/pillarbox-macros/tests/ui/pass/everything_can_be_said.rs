use pillarbox::{AggregateType, Event, EventType, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", version = 3, aggregate = "order",)]
struct OrderPlaced {
    #[event(id)]
    order_id: u64,
    #[event(key)]
    customer: String,
    #[event(tenant)]
    shop: char,
    total: u32,
}

fn main() {
    let placed = OrderPlaced { order_id: 7, customer: "ada".into(), shop: 'b', total: 12 };

    assert_eq!(OrderPlaced::TYPE, EventType::from_static("order.placed"));
    assert_eq!(OrderPlaced::VERSION, 3);
    assert_eq!(OrderPlaced::AGGREGATE, AggregateType::from_static("order"));
    assert_eq!(placed.aggregate_id(), Some("7".into()));
    assert_eq!(placed.key(), Key::Given("ada".into()));
    assert_eq!(placed.tenant(), Some("b".into()));
    assert_eq!(placed.total, 12);
}
