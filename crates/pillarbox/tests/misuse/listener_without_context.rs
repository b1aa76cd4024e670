use pillarbox::{Event, Failure, Listeners};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("order.placed")]
struct OrderPlaced;

async fn send_receipt(_: OrderPlaced) -> Result<(), Failure> {
    Ok(())
}

fn main() {
    let _ = Listeners::new().on::<OrderPlaced>(send_receipt);
}
