//! One row is locked by somebody's idle transaction: every other key is settled meanwhile.

use std::time::Duration;

use pillarbox::RelaySettings;

use crate::Result;
use crate::check::Faults;
use crate::deployment::Server;
use crate::finding::Finding;
use crate::scenario::environment::{Environment, now, wait_until};
use crate::scenario::{PROGRESS_TIMEOUT, Scale};

/// The account whose third event is locked.
const ACCOUNT: i64 = 7;

/// How long the lock is held where the goals are measured. Smaller runs release it as soon as
/// everything else is settled, or nothing was settled for so long.
const HELD: Duration = Duration::from_secs(30);

pub(super) async fn run(env: &Environment, settings: &RelaySettings) -> Result<Vec<Finding>> {
    if env.deployment.server == Server::Sqlite {
        return Ok(vec![Finding::info("one locked row", "SQLite has no row locks")]);
    }
    let backlog = env.options.scale.pick(600, 5_000, 20_000);
    let bank = &env.deployment.bank;
    bank.fill(0, backlog, env.accounts).await?;
    let mut holder = bank.foreign_client().await?;
    let locked = ACCOUNT + 2 * env.accounts;
    let lock = format!(
        "begin; select seq from outbox_event where event_id = '01J{locked:0>23}' for update"
    );
    holder.run(&lock).await?;

    let started = now();
    let relay = env.relay(&env.relay_config("locked", settings))?;
    settled_or_stuck(env).await;
    let (left, took) = (bank.waiting_beside(ACCOUNT).await?, started.elapsed());
    let behind = i64::try_from(env.deployment.pending().await?)? - left;
    if env.options.scale == Scale::Full {
        tokio::time::sleep_until(started + HELD).await;
    }
    holder.run("rollback").await?;
    env.drained().await?;
    relay.stop().await?;

    let report = env.report(&Faults::default()).await?;
    let others = backlog - backlog / env.accounts;
    let value = format!("{} of {others} in {:.1} s", others - left, took.as_secs_f64());
    Ok(vec![
        Finding::info("one locked row, among", backlog),
        Finding::precondition("rows blocked by the lock", behind, "> 0", behind > 0),
        Finding::guarantee("events of other keys settled during the lock", value, "all", left == 0),
        Finding::must_be_zero("lost after the lock", report.lost),
        Finding::must_be_zero("duplicates", report.duplicates),
        Finding::must_be_zero("first deliveries of a key out of order", report.inversions),
    ])
}

/// Waits until all other keys are settled. What a stuck relay leaves is counted afterwards.
async fn settled_or_stuck(env: &Environment) {
    let mut last = (i64::MAX, now());
    let _ =
        wait_until(env.options.scale.pick(PROGRESS_TIMEOUT, PROGRESS_TIMEOUT, HELD), async || {
            let left = env.deployment.bank.waiting_beside(ACCOUNT).await?;
            if left < last.0 {
                last = (left, now());
            }
            Ok(left == 0 || last.1.elapsed() > HELD)
        })
        .await;
}
