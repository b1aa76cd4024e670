use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.changed")]
enum OrderChanged {
    Placed,
    Paid,
}

fn main() {}
