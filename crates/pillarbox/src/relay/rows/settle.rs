//! Writing verdicts on rows until they are written: repeated, and split where one is refused.

use std::time::Duration;

use crate::clock::instant;
use crate::error::Result;
use crate::id::Seq;
use crate::observe::{Happening, Observers};
use crate::point::point;
use crate::relay::number::NumberSet;
use crate::relay::settle::{answered, give_up, split};
use crate::store::{SettleRows, Store};

/// What became of a batch of verdicts.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Written.
    pub(super) applied: NumberSet<Seq>,
    /// Refused by the database for a reason that trying again will not mend.
    pub(super) failed: NumberSet<Seq>,
}

/// Repeats a settle until it is answered: the tokens make the second time harmless. One verdict
/// that the database cannot write must not keep the others from being written.
pub(super) async fn settle_for_sure(
    store: &dyn Store,
    settle: SettleRows,
    patience: Duration,
    observers: &Observers,
) -> Answer {
    let mut answer = Answer::default();
    let mut batches = vec![settle.verdicts];
    while let Some(verdicts) = batches.pop() {
        let batch = SettleRows { owner: settle.owner.clone(), verdicts };
        let ask = || write(store, &batch, observers);
        match answered(u32::MAX, patience, observers, ask).await {
            Ok(applied) => answer.applied.extend(applied),
            Err(error) if batch.verdicts.len() <= 1 => {
                let seqs = batch.verdicts.iter().map(|it| it.row.seq);
                answer.failed.extend(seqs.map(|seq| give_up(seq, &error, observers)));
            }
            Err(_) => split(batch.verdicts, &mut batches),
        }
    }
    answer
}

/// Writes a batch, and tells how long the database took.
async fn write(store: &dyn Store, settle: &SettleRows, observers: &Observers) -> Result<Vec<Seq>> {
    let start = instant();
    point!("rows.settle.before"?);
    let applied = store.settle_rows(settle).await?;
    point!("rows.settle.after"?);
    let (rows, took) = (applied.len(), instant() - start);
    observers.see(&Happening::Settled { rows, took });
    Ok(applied)
}
