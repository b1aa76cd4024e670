//! From the word to go to the last completion.

use std::{
    io::stdin,
    process,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::json;
use tokio::time::sleep;

use crate::{Result, order::Order};

static HANDLED: AtomicU32 = AtomicU32::new(0);
static DISTINCT: AtomicU32 = AtomicU32::new(0);
static SEEN: Mutex<Seen> = Mutex::new(Seen { numbers: Vec::new(), first: None });

struct Seen {
    numbers: Vec<bool>,
    first: Option<Instant>,
}

/// What every handler does, and all it does.
pub(crate) fn hear(number: u32) {
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    seen.first.get_or_insert_with(Instant::now);
    HANDLED.fetch_add(1, Ordering::Relaxed);
    if let Some(place) = seen.numbers.get_mut(number as usize)
        && !std::mem::replace(place, true)
    {
        DISTINCT.fetch_add(1, Ordering::Relaxed);
    }
}

/// Says that all is ready, starts the worker on the word, and ends the process once nothing is
/// left and the answer was taken.
pub(crate) async fn run(
    order: &Order,
    start: impl Future<Output = Result>,
    left: impl AsyncFn() -> Result<i64>,
) -> Result {
    SEEN.lock().unwrap_or_else(PoisonError::into_inner).numbers =
        vec![false; order.count as usize + 1];
    println!("{}", json!({ "ready": true }));
    stdin().read_line(&mut String::new())?;

    start.await?;
    while DISTINCT.load(Ordering::Relaxed) < order.count {
        sleep(Duration::from_millis(1)).await;
    }
    while left().await? > 0 {
        sleep(Duration::from_millis(2)).await;
    }
    let first = SEEN.lock().unwrap_or_else(PoisonError::into_inner).first.ok_or("nothing heard")?;
    let (handled, distinct) = (HANDLED.load(Ordering::Relaxed), DISTINCT.load(Ordering::Relaxed));
    let seconds = first.elapsed().as_secs_f64();
    println!(
        "{}",
        json!({ "seconds": seconds, "handled": distinct, "duplicates": handled - distinct })
    );

    stdin().read_line(&mut String::new())?;
    process::exit(0)
}
