use std::fmt::Display;

use pillarbox::{Event, EventType, Key};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

#[derive(Serialize, Deserialize, Event)]
#[serde(bound = "")]
#[event("value.changed", aggregate = "value")]
struct ValueChanged<T: Display, const SIZE: usize>
where
    T: Serialize + DeserializeOwned + Send + Sync + 'static,
{
    #[event(id)]
    name: T,
    #[event(key)]
    group: T,
}

fn main() {
    let changed = ValueChanged::<u16, 4> { name: 1, group: 2 };

    assert_eq!(ValueChanged::<u16, 4>::TYPE, EventType::from_static("value.changed"));
    assert_eq!(changed.aggregate_id(), Some("1".into()));
    assert_eq!(changed.key(), Key::Given("2".into()));
}
