//! Well-formed events at a steady rate, and how soon each is delivered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::{Clock as _, Outbox, SystemClock};

use crate::Result;
use crate::bank::{Bank, TxEnd};
use crate::log::{Entry, parse};

/// Between two transactions, each of which emits two events.
const PACE: Duration = Duration::from_millis(10);

/// When the events of each account and count were committed, in microseconds since 1970.
pub(super) type Commits = HashMap<(i64, i64), i64>;

/// Commits until it is told to stop, and at least so many transactions, on the first accounts.
pub(super) async fn run(
    bank: &Bank,
    accounts: i64,
    transactions: i64,
    over: &AtomicBool,
) -> Result<Commits> {
    let outbox = Outbox::new();
    let counts: Vec<i64> = bank.committed().await?.iter().map(|account| account.ordered).collect();
    let mut commits = Commits::new();
    let mut ticks = tokio::time::interval(PACE);
    for turn in 0.. {
        if turn >= transactions && over.load(Ordering::Relaxed) {
            break;
        }
        ticks.tick().await;
        let account = turn % accounts;
        step(bank, &outbox, account).await?;
        let before = counts.get(usize::try_from(account)?).copied().unwrap_or(0);
        let n = before + turn / accounts + 1;
        commits.insert((account, n), SystemClock.now().unix_micros());
    }
    Ok(commits)
}

/// Tries again while the database is busy.
async fn step(bank: &Bank, outbox: &Outbox, account: i64) -> Result {
    loop {
        match bank.transact(outbox, &[account], TxEnd::Commit).await {
            Err(error) if error.is_transient() => {}
            done => return Ok(done?),
        }
    }
}

/// The time from commit to delivery that 99 of 100 events do not exceed.
pub(super) fn p99(commits: &Commits, log: &str) -> Duration {
    let mut times: Vec<i64> = log
        .lines()
        .filter_map(parse)
        .filter_map(|line| match line.entry {
            Entry::Ordered { account, n, .. } | Entry::Unordered { account, n, .. } => {
                Some(line.at - commits.get(&(account, n))?)
            }
            _ => None,
        })
        .collect();
    times.sort_unstable();
    let micros = times.get(times.len() * 99 / 100).copied().unwrap_or(0);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_hundredth_is_left_out() {
        let commits: Commits = (1..=200).map(|n| ((7, n), 1000)).collect();
        let line = |n: i64| {
            let at = 1000 + n;
            format!(
                r#"{{"incarnation":"r","at":{at},"what":"ordered","id":"x","account":7,"n":{n}}}"#
            )
        };
        let log: Vec<String> = (1..=300).map(line).collect();

        assert_eq!(p99(&commits, &log.join("\n")), Duration::from_micros(199));
        assert_eq!(p99(&commits, ""), Duration::ZERO);
    }
}
