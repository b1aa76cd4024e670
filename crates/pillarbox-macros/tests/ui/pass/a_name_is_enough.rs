use pillarbox::{AggregateType, Event, EventType, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("clock.struck")]
struct ClockStruck;

fn main() {
    assert_eq!(ClockStruck::TYPE, EventType::from_static("clock.struck"));
    assert_eq!(ClockStruck::VERSION, 1);
    assert_eq!(ClockStruck::AGGREGATE, AggregateType::GLOBAL);
    assert_eq!(ClockStruck.aggregate_id(), None);
    assert_eq!(ClockStruck.key(), Key::Aggregate);
    assert_eq!(ClockStruck.tenant(), None);
}
