use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", agregate = "order", type = "placed", tenant)]
struct OrderPlaced;

fn main() {}
