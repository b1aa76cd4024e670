//! A listener that fails, the dead letter it leaves, and the way back: look, mend, replay.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::{num::NonZeroU32, time::Duration};

use pillarbox::store::{Action, Filter, List};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Admin, Backoff, Cx, Event, Failure, Listeners, Relay, RelaySettings, SqliteStore};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("invoice.due", aggregate = "invoice")]
struct InvoiceDue {
    #[event(id)]
    invoice_id: i64,
}

static BANK_ANSWERS: AtomicBool = AtomicBool::new(false);

async fn charge(invoice: InvoiceDue, cx: Cx) -> Result<(), Failure> {
    let (id, attempt) = (invoice.invoice_id, cx.attempt());
    if !BANK_ANSWERS.load(Ordering::SeqCst) {
        println!("invoice {id}: attempt {attempt} failed");
        return Err("the bank does not answer".into()); // any error: tried again with backoff
    }
    println!("invoice {id}: charged on attempt {attempt}");
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    store.migrate().await?;
    let (pool, admin, probe) = (store.pool().clone(), Admin::new(store.clone()), Probe::new());
    let three = NonZeroU32::new(3).ok_or("three is not zero")?;
    let relay = Relay::new(store, Listeners::new().on(charge))
        .settings(RelaySettings { max_attempts: three, ..RelaySettings::one_process() })
        .retry(Backoff::new(Duration::from_millis(20), Duration::from_secs(1)))
        .observer(probe.clone());
    let outbox = relay.outbox();
    let relay = relay.spawn().await?;

    let mut tx = outbox.begin(&pool).await?;
    tx.emit(&InvoiceDue { invoice_id: 7 }).await?;
    tx.commit().await?;

    // Three attempts, and what became of each is written down.
    probe.wait_many(3, |seen| matches!(seen, RelayEvent::Settled { .. })).await;
    for letter in admin.dead_letters(&List::default()).await? {
        let error = letter.last_error.unwrap_or_default();
        println!("dead letter: {} after {} attempts: {error}", letter.event_type, letter.attempts);
    }

    BANK_ANSWERS.store(true, Ordering::SeqCst);
    let unanswered = Filter { error: Some("does not answer".into()), ..Filter::default() };
    let replay = admin.operate_matching(Action::Replay, unanswered);
    let replayed = replay.by("ana")?.reason("the bank is back")?.run().await?;
    println!("{} replayed", replayed.changed);
    outbox.wake(); // or the relay's next sweep finds it

    let charged = probe.wait(|seen| matches!(seen, RelayEvent::Delivered(_))).await;
    relay.stop().await?;
    let attempt = charged.attempt().ok_or("a delivery has an event")?;
    for entry in admin.audit_trail(&attempt.event_id).await? {
        let by = entry.by.map_or(String::new(), |by| format!(" by {by}"));
        println!("trail: {}{by}", entry.action);
    }
    Ok(())
}
