use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = order)]
struct OrderPlaced;

#[derive(Serialize, Deserialize, Event)]
#[event("order.paid", aggregate)]
struct OrderPaid;

fn main() {}
