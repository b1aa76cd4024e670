//! One row is locked by somebody's idle transaction: every other key is settled meanwhile.

use std::time::Duration;

use pillarbox::RelaySettings;

use crate::Result;
use crate::check::Faults;
use crate::place::Server;
use crate::show::Scale;
use crate::show::stage::{Stage, now, wait};
use crate::table::Finding;

/// The account whose third event is locked.
const ACCOUNT: i64 = 7;

/// How long the lock is held where the goals are measured. Smaller runs release it as soon as
/// everything else is settled, and give a busy machine more time for that.
const HELD: Duration = Duration::from_secs(30);

pub(super) async fn run(stage: &Stage, settings: &RelaySettings) -> Result<Vec<Finding>> {
    if stage.place.server == Server::Sqlite {
        return Ok(vec![Finding::told("one locked row", "SQLite has no row locks")]);
    }
    let backlog = stage.scale.pick(2_400, 5_000, 20_000);
    let bank = &stage.place.bank;
    bank.fill(0, backlog, stage.accounts).await?;
    let mut holder = bank.foreign().await?;
    let locked = ACCOUNT + 2 * stage.accounts;
    let lock = format!(
        "begin; select seq from outbox_event where event_id = '01J{locked:0>23}' for update"
    );
    let is_locked = holder.run(&lock).await?;

    let started = now();
    let patience = stage.scale.pick(3 * HELD, 3 * HELD, HELD);
    let relay = stage.relay(&stage.orders("locked", settings))?;
    // A relay that cannot go on is found out; what it left open is counted below.
    let _ = wait(patience, async || Ok(bank.waiting_beside(ACCOUNT).await? == 0)).await;
    let (left, took) = (bank.waiting_beside(ACCOUNT).await?, started.elapsed());
    if stage.scale == Scale::Full {
        tokio::time::sleep_until(started + HELD).await;
    }
    holder.run("rollback").await?;
    stage.drained().await?;
    relay.stop().await?;

    let report = stage.report(&Faults::default()).await?;
    let others = backlog - backlog / stage.accounts;
    let value = format!("{} of {others} in {:.1} s", others - left, took.as_secs_f64());
    Ok(vec![
        Finding::meaningful("one locked row, among", backlog, "locked", is_locked),
        Finding::promise(
            "events of other keys settled while it was locked",
            value,
            "all",
            left == 0,
        ),
        Finding::none("lost after it was unlocked", report.lost),
        Finding::none("duplicates", report.duplicates),
        Finding::none("first deliveries of a key out of order", report.inversions),
    ])
}
