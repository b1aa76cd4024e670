use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", version = "2")]
struct OrderPlaced;

#[derive(Serialize, Deserialize, Event)]
#[event("order.paid", version = -1)]
struct OrderPaid;

#[derive(Serialize, Deserialize, Event)]
#[event("order.sent", version = 4294967296)]
struct OrderSent;

#[derive(Serialize, Deserialize, Event)]
#[event("order.lost", version)]
struct OrderLost;

fn main() {}
