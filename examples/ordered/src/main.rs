//! Events of one key come in order, whatever happens: one key goes smoothly, one is retried, and
//! one is held until somebody replays what was given up. No key waits for another.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use pillarbox::store::{Action, Filter};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Admin, Cx, Event, Failure, Listeners, Relay, RelaySettings, SqliteStore};
use serde::{Deserialize, Serialize};

/// The id of its aggregate is what an event is ordered by.
#[derive(Serialize, Deserialize, Event)]
#[event("account.changed", aggregate = "account")]
struct AccountChanged {
    #[event(id)]
    owner: String,
    number: i64,
}

static LEDGER: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
static IS_MENDED: AtomicBool = AtomicBool::new(false);

async fn book(change: AccountChanged, cx: Cx) -> Result<(), Failure> {
    let outcome = match (&*change.owner, change.number) {
        ("bob", 1) if cx.attempt() < 3 => Err("the line is busy".into()),
        ("eve", 1) if !IS_MENDED.load(Ordering::SeqCst) => Err(Failure::dead("no such account")),
        _ => Ok(()),
    };
    let mark = if outcome.is_ok() { "" } else { " failed" };
    let entry = (change.owner, format!("{}{mark}", change.number));
    LEDGER.lock().map_err(|_| "the ledger is torn")?.push(entry);
    outcome
}

fn show(owner: &str) {
    let ledger = LEDGER.lock().map(|ledger| ledger.clone()).unwrap_or_default();
    let lines = ledger.into_iter().filter(|(of, _)| of == owner).map(|(_, line)| line);
    println!("{owner}: {}", lines.collect::<Vec<_>>().join(", "));
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    store.migrate().await?;
    let (pool, admin, probe) = (store.pool().clone(), Admin::new(store.clone()), Probe::new());
    let relay = Relay::new(store, Listeners::new().on(book))
        .settings(RelaySettings::one_process())
        .observer(probe.clone());
    let outbox = relay.outbox();
    let relay = relay.spawn().await?;

    for number in 1..=3 {
        let mut tx = outbox.begin(&pool).await?;
        for owner in ["ada", "bob", "eve"] {
            tx.emit(&AccountChanged { owner: owner.into(), number }).await?;
        }
        tx.commit().await?;
    }
    // All of ada's and bob's; eve's first is given up, and the others wait behind it.
    probe.wait_many(6, |seen| matches!(seen, RelayEvent::Delivered(_))).await;
    let mut settled = 0;
    while admin.count(&Filter::default()).await? == 0 {
        let is_settled = |seen: &RelayEvent<'_>| matches!(seen, RelayEvent::Settled { .. });
        settled = probe.wait_many(settled + 1, is_settled).await.len();
    }
    ["ada", "bob", "eve"].iter().for_each(|owner| show(owner));

    IS_MENDED.store(true, Ordering::SeqCst);
    let replayed = admin.operate_matching(Action::Replay, Filter::default()).run().await?;
    outbox.wake();
    probe.wait_many(9, |seen| matches!(seen, RelayEvent::Delivered(_))).await;
    println!("{} replayed", replayed.changed);
    show("eve");
    relay.stop().await?;
    Ok(())
}
