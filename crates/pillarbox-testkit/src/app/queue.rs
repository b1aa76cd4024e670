//! What waits, and what of it could be delivered now. Pure.

use std::{collections::HashSet, num::NonZeroU16, time::Duration};

use pillarbox::ShardId;
use pillarbox::store::{Budget, Pending, Read, Status};

use crate::backend::from_head;

/// A read that shows everything.
pub(super) fn everything(shards: NonZeroU16) -> Read {
    let shards = (0..).map(ShardId).take(usize::from(shards.get())).map(from_head).collect();
    Read { shards, limit: u32::MAX, budget: Budget::unlimited() }
}

/// The first one that is due and waits for no other.
pub(super) fn next_due(rows: Vec<Pending>) -> Option<Pending> {
    let seq = heads(&rows).find(|row| row.due_in.is_zero()).map(|row| row.seq)?;
    rows.into_iter().find(|row| row.seq == seq)
}

/// How long until one is due; `None` when one is already, or none will be.
pub(super) fn next_wait(rows: &[Pending]) -> Option<Duration> {
    heads(rows).map(|row| row.due_in).min().filter(|wait| !wait.is_zero())
}

/// Those at the head of their key, in order; a key that is held has none.
fn heads(rows: &[Pending]) -> impl Iterator<Item = &Pending> {
    let mut rows: Vec<&Pending> = rows.iter().collect();
    rows.sort_by_key(|row| row.seq);
    let mut keys = HashSet::new();
    rows.retain(|row| row.key.as_ref().is_none_or(|key| keys.insert(key)));
    rows.into_iter().filter(|row| row.status != Status::Held)
}

#[cfg(test)]
mod tests {
    use pillarbox::store::Content;
    use pillarbox::{Envelope, Seq, Token};

    use super::*;

    fn row(seq: i64, key: Option<&str>, status: Status, due_in: u64) -> Pending {
        Pending {
            seq: Seq(seq),
            shard: ShardId(0),
            key: key.map(Into::into),
            token: Token(0),
            status,
            attempts: 0,
            due_in: Duration::from_secs(due_in),
            lapsed: false,
            behind: false,
            content: Content::Event(Envelope::json("order.placed", &seq).unwrap()),
        }
    }

    #[test]
    fn the_rest_of_a_key_waits_for_its_head() {
        let rows = vec![
            row(4, None, Status::New, 0),
            row(1, Some("held"), Status::Held, 0),
            row(2, Some("held"), Status::New, 0),
            row(3, Some("late"), Status::Waiting, 9),
            row(5, Some("late"), Status::New, 0),
        ];

        assert_eq!(next_wait(&rows), None, "one is due");
        assert_eq!(next_due(rows.clone()).map(|row| row.seq), Some(Seq(4)));
        let waiting: Vec<Pending> = rows.into_iter().filter(|row| row.seq != Seq(4)).collect();
        assert_eq!(next_wait(&waiting), Some(Duration::from_secs(9)));
        assert!(next_due(waiting).is_none());
    }
}
