use pillarbox::Event;
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event(
    "orderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorderorder",
    aggregate = "orderorderorderorderorderorderorderorderorderorderorderorderorder"
)]
struct OrderPlaced;

fn main() {}
