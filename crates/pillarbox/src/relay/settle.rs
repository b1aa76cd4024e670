//! Writing verdicts until they are written: repeated, and split where the database refuses.

use std::{collections::HashSet, time::Duration};

use tracing::{error, warn};

use crate::error::{Error, Result};
use crate::id::{Seq, ShardId};
use crate::store::{Settle, Settled, Settlement, Store};

/// What became of a batch of verdicts.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Written.
    pub(super) applied: HashSet<Seq>,
    /// Shards that are not held any more.
    pub(super) refused: HashSet<ShardId>,
    /// Refused by the database for a reason that trying again will not mend.
    pub(super) failed: HashSet<Seq>,
}

/// Repeats a settle until it is answered: the fences make the second time harmless. One verdict
/// that the database cannot write must not keep the others from being written.
pub(super) async fn settle_for_sure(
    store: &dyn Store,
    settle: Settle,
    patience: Duration,
) -> Answer {
    let mut answer = Answer::default();
    let mut batches = vec![settle.settlements];
    while let Some(settlements) = batches.pop() {
        let settle = Settle { owner: settle.owner.clone(), settlements };
        match answered(store, &settle, patience).await {
            Ok(settled) => {
                answer.applied.extend(settled.applied);
                answer.refused.extend(settled.refused);
            }
            Err(error) => split(settle.settlements, &error, &mut batches, &mut answer),
        }
    }
    answer
}

/// Asks again while the error is one that passes.
async fn answered(store: &dyn Store, settle: &Settle, patience: Duration) -> Result<Settled> {
    let mut pause = Duration::from_millis(50);
    loop {
        let (events, tried) = (settle.settlements.len(), store.settle(settle));
        match tokio::time::timeout(patience, tried).await {
            Ok(Err(error)) if error.is_transient() => {
                let cause = error.source_text();
                warn!(error = %error, cause, events, "settle failed, trying again");
            }
            Ok(answer) => return answer,
            Err(_) => warn!(events, "settle not answered, trying again"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

fn split(
    mut settlements: Vec<Settlement>,
    error: &Error,
    batches: &mut Vec<Vec<Settlement>>,
    answer: &mut Answer,
) {
    if settlements.len() > 1 {
        batches.push(settlements.split_off(settlements.len() / 2));
        batches.push(settlements);
        return;
    }
    for Settlement { seq, .. } in settlements {
        let (seq_number, cause) = (seq.0, error.source_text());
        error!(error = %error, cause, seq = seq_number, "verdict refused by the database");
        answer.failed.insert(seq);
    }
}
