use pillarbox::{AggregateType, Event, EventType, Key};
use serde::{Deserialize, Serialize};

macro_rules! event {
    ($name:ident, $text:literal, $version:literal, $aggregate:literal, $field:ident: $type:ty) => {
        #[derive(Serialize, Deserialize, Event)]
        #[event($text, version = $version, aggregate = $aggregate)]
        struct $name {
            #[event(id)]
            id: u8,
            #[event(key)]
            $field: String,
            #[event(tenant)]
            owner: $type,
        }
    };
}

event!(BookLent, "book.lent", 4, "book", reader: Option<String>);

fn main() {
    let lent = BookLent { id: 1, reader: "eve".into(), owner: None };

    assert_eq!(BookLent::TYPE, EventType::from_static("book.lent"));
    assert_eq!(BookLent::VERSION, 4);
    assert_eq!(BookLent::AGGREGATE, AggregateType::from_static("book"));
    assert_eq!(lent.aggregate_id(), Some("1".into()));
    assert_eq!(lent.key(), Key::Given("eve".into()));
    assert_eq!(lent.tenant(), None);
}
