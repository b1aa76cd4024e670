//! What can happen next, and how often it does.

use proptest::prelude::*;

use crate::relay::fetch::shard_queues::tests::KEYS;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Emit {
        key: usize,
        count: usize,
        hot: bool,
    },
    EmitFree,
    Commit {
        key: usize,
    },
    Rollback {
        key: usize,
    },
    /// The writer that committed or rolled back longest ago tells the relay.
    HandOver,
    /// The relay reads its messages.
    Message,
    /// The relay has waited long enough for those that have not committed.
    Overdue,
    StartRead,
    EndRead,
    /// It took long: the next ones begin above what was seen long ago.
    EndSlowRead,
    FailRead,
    Start,
    /// The lease was too short to start it.
    PutBack {
        which: usize,
    },
    Deliver {
        which: usize,
        outcome: u8,
    },
    StartSettle,
    EndSettle,
    /// It was written, and the answer got lost: repeated, it applies to nothing.
    LoseSettle,
    /// The shards are lost and taken again at a new epoch, whatever is under way.
    LoseShards,
    /// A shard is to be given back, as soon as nothing of it is under way.
    Drain,
    /// What was given back is taken again, as by the next owner.
    Take,
    Advance {
        millis: u64,
    },
    Wake,
    Sweep,
    Replay,
    /// Waiting rows that are due become new; the relay may not hear of it.
    Promote {
        is_heard: bool,
    },
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..KEYS, 1..8_usize, any::<bool>())
            .prop_map(|(key, count, hot)| Step::Emit { key, count, hot }),
        4 => Just(Step::HandOver),
        3 => Just(Step::Message),
        1 => Just(Step::Overdue),
        2 => Just(Step::EmitFree),
        4 => (0..KEYS).prop_map(|key| Step::Commit { key }),
        1 => (0..KEYS).prop_map(|key| Step::Rollback { key }),
        8 => Just(Step::StartRead),
        5 => Just(Step::EndRead),
        3 => Just(Step::EndSlowRead),
        1 => Just(Step::FailRead),
        1 => (0..8_usize).prop_map(|which| Step::PutBack { which }),
        10 => Just(Step::Start),
        10 => (0..8_usize, 0..10_u8).prop_map(|(which, outcome)| Step::Deliver { which, outcome }),
        5 => Just(Step::StartSettle),
        5 => Just(Step::EndSettle),
        1 => Just(Step::LoseSettle),
        1 => prop_oneof![4 => Just(Step::Wake), 1 => Just(Step::LoseShards)],
        1 => Just(Step::Drain),
        2 => Just(Step::Take),
        3 => (1..200_u64).prop_map(|millis| Step::Advance { millis }),
        1 => Just(Step::Advance { millis: 1_100 }),
        3 => Just(Step::Wake),
        1 => Just(Step::Sweep),
        1 => Just(Step::Replay),
        4 => any::<bool>().prop_map(|is_heard| Step::Promote { is_heard }),
    ];
    prop::collection::vec(step, 50..400)
}
