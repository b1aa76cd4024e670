//! Writing verdicts until they are written: repeated, and split where the database refuses.

use std::time::Duration;

use super::number::NumberSet;
use super::read::no_answer;
use crate::clock::instant;
use crate::error::{Error, Result};
use crate::id::{Seq, ShardId};
use crate::observe::{Happening, Observers, Part};
use crate::point::point;
use crate::store::{Settle, Settled, Store};

/// What became of a batch of verdicts.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Written.
    pub(super) applied: NumberSet<Seq>,
    /// Shards that are not held any more.
    pub(super) refused: NumberSet<ShardId>,
    /// Refused by the database for a reason that trying again will not mend.
    pub(super) failed: NumberSet<Seq>,
}

/// Repeats a settle until it is answered: the fences make the second time harmless. One verdict
/// that the database cannot write must not keep the others from being written.
pub(super) async fn settle_for_sure(
    store: &dyn Store,
    settle: Settle,
    patience: Duration,
    observers: &Observers,
) -> Answer {
    let mut answer = Answer::default();
    let mut batches = vec![settle.settlements];
    while let Some(settlements) = batches.pop() {
        let settle = Settle { owner: settle.owner.clone(), settlements };
        let ask = || write(store, &settle, observers);
        match answered(u32::MAX, patience, observers, ask).await {
            Ok(settled) => {
                answer.applied.extend(settled.applied);
                answer.refused.extend(settled.refused);
            }
            Err(error) if settle.settlements.len() <= 1 => {
                let seqs = settle.settlements.iter().map(|it| it.seq);
                answer.failed.extend(seqs.map(|seq| give_up(seq, &error, observers)));
            }
            Err(_) => split(settle.settlements, &mut batches),
        }
    }
    answer
}

/// Writes a batch, and tells how long the database took.
async fn write(store: &dyn Store, settle: &Settle, observers: &Observers) -> Result<Settled> {
    let start = instant();
    point!("settle.before"?);
    let settled = store.settle(settle).await?;
    point!("settle.after"?);
    let (rows, took) = (settled.applied.len(), instant() - start);
    observers.see(&Happening::Settled { rows, took });
    Ok(settled)
}

/// Asks again while the error is one that passes, up to so many times.
pub(super) async fn answered<T, F: Future<Output = Result<T>>>(
    tries: u32,
    patience: Duration,
    observers: &Observers,
    ask: impl Fn() -> F,
) -> Result<T> {
    let mut pause = Duration::from_millis(50);
    for _ in 1..tries {
        match tokio::time::timeout(patience, ask()).await {
            Ok(Err(error)) if error.is_transient() => {
                observers.see(&Happening::trouble(Part::Settle, &error));
            }
            Ok(answer) => return answer,
            Err(_) => observers.see(&Happening::mishap(Part::Settle, "settle not answered")),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
    tokio::time::timeout(patience, ask()).await.unwrap_or_else(|_| Err(no_answer()))
}

pub(super) fn split<T>(mut batch: Vec<T>, batches: &mut Vec<Vec<T>>) {
    batches.push(batch.split_off(batch.len() / 2));
    batches.push(batch);
}

/// The one that cannot be written stands alone now.
pub(super) fn give_up(seq: Seq, error: &Error, observers: &Observers) -> Seq {
    let error = format!("{error}: {}", error.source_text());
    observers.see(&Happening::VerdictRefused { seq, error: error.into() });
    seq
}
