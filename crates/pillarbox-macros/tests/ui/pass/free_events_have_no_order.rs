use pillarbox::{AggregateType, Event, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("sensor.read", free, aggregate = "sensor", version = 2)]
struct SensorRead {
    #[event(id)]
    sensor: String,
    #[event(tenant)]
    house: String,
}

fn main() {
    let read = SensorRead { sensor: "roof".into(), house: "mill".into() };

    assert_eq!(SensorRead::VERSION, 2);
    assert_eq!(SensorRead::AGGREGATE, AggregateType::from_static("sensor"));
    assert_eq!(read.key(), Key::Free);
    assert_eq!(read.aggregate_id(), Some("roof".into()));
    assert_eq!(read.tenant(), Some("mill".into()));
}
