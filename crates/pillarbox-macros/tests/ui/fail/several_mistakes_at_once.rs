use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(version = 0, loud)]
struct OrderPlaced {
    #[event(ident)]
    order_id: u64,
    #[event(key)]
    customer: Option<String>,
}

fn main() {}
