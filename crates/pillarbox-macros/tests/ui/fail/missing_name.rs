use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(version = 2)]
struct OrderPlaced;

#[derive(Serialize, Deserialize, Event)]
#[event()]
struct OrderPaid;

#[derive(Serialize, Deserialize, Event)]
#[event]
struct OrderSent;

fn main() {}
