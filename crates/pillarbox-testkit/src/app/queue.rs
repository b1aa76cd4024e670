//! The waiting events, and which of them are due. Without I/O.

use std::{collections::HashSet, num::NonZeroU16, time::Duration};

use pillarbox::ShardId;
use pillarbox::store::{Budget, Pending, Predecessor, Promote, Read};

use crate::backend::from_head;

/// A read that shows everything.
pub(super) fn everything(shards: NonZeroU16) -> Read {
    let shards = all(shards).map(from_head).collect();
    Read { shards, limit: u32::MAX, budget: Budget::unlimited() }
}

/// A promotion of everything that is due.
pub(super) fn every_due(shards: NonZeroU16) -> Promote {
    Promote { shards: all(shards).collect(), limit: u32::MAX }
}

fn all(shards: NonZeroU16) -> impl Iterator<Item = ShardId> {
    (0..).map(ShardId).take(usize::from(shards.get()))
}

/// The first one that is due and waits for no other.
pub(super) fn next_due(rows: &[Pending]) -> Option<&Pending> {
    heads(rows).find(|row| row.due_in.is_zero())
}

/// How long until one may be due, where none is yet and the next waiting row is due after `next`;
/// `None` when none will be.
pub(super) fn next_wait(rows: &[Pending], next: Option<Duration>) -> Option<Duration> {
    heads(rows).map(|row| row.due_in).chain(next).min()
}

/// Those at the head of their key, in order; a key that waits or is held has none.
fn heads(rows: &[Pending]) -> impl Iterator<Item = &Pending> {
    let mut rows: Vec<&Pending> = rows.iter().collect();
    rows.sort_by_key(|row| row.seq);
    let mut keys = HashSet::new();
    rows.retain(|row| row.key.as_ref().is_none_or(|key| keys.insert(key)));
    rows.into_iter().filter(|row| row.before == Predecessor::Nothing)
}

#[cfg(test)]
mod tests {
    use pillarbox::store::{Content, Status};
    use pillarbox::{Envelope, Seq, Token};

    use super::*;

    fn row(seq: i64, key: Option<&str>, before: Predecessor, due_in: u64) -> Pending {
        Pending {
            seq: Seq(seq),
            shard: ShardId(0),
            key: key.map(Into::into),
            token: Token(0),
            status: Status::New,
            attempts: 0,
            due_in: Duration::from_secs(due_in),
            is_early: false,
            lapsed: false,
            before,
            content: Content::Event(Envelope::json("order.placed", &seq).unwrap()),
        }
    }

    #[test]
    fn the_rest_of_a_key_waits_for_its_head() {
        let rows = [
            row(4, None, Predecessor::Nothing, 0),
            row(2, Some("held"), Predecessor::Waiting, 0),
            row(3, Some("leased"), Predecessor::Nothing, 9),
            row(5, Some("leased"), Predecessor::Nothing, 0),
        ];

        assert_eq!(next_due(&rows).map(|row| row.seq), Some(Seq(4)));
        assert!(next_due(&rows[1..]).is_none());
    }

    #[test]
    fn the_next_one_is_a_head_or_a_waiting_row() {
        let rows =
            [row(1, Some("held"), Predecessor::Waiting, 0), row(2, None, Predecessor::Nothing, 9)];
        let secs = Duration::from_secs;

        assert_eq!(next_wait(&rows, None), Some(secs(9)));
        assert_eq!(next_wait(&rows, Some(secs(7))), Some(secs(7)));
        assert_eq!(next_wait(&rows[..1], Some(secs(7))), Some(secs(7)));
        assert_eq!(next_wait(&rows[..1], None), None);
    }
}
