use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(42)]
struct OrderPlaced;

const NAME: &str = "order.paid";

#[derive(Serialize, Deserialize, Event)]
#[event(NAME)]
struct OrderPaid;

fn main() {}
