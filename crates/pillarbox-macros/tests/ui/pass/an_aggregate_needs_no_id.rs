use pillarbox::{AggregateType, Event, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("catalog.rebuilt", aggregate = "catalog")]
struct CatalogRebuilt {}

fn main() {
    assert_eq!(CatalogRebuilt::AGGREGATE, AggregateType::from_static("catalog"));
    assert_eq!(CatalogRebuilt {}.aggregate_id(), None);
    assert_eq!(CatalogRebuilt {}.key(), Key::Aggregate);
}
