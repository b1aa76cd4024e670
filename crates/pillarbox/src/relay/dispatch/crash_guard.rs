//! Counts how often relays have crashed while delivering an event, and gives up one that keeps
//! crashing them.
//!
//! A row is counted right before it starts and never while it waits, or the rows behind the cause
//! would be blamed with it. A row that was counted before starts alone: nothing beside it can be the
//! cause, and it is blamed for nothing beside it. After too many counts it is given up.

use std::collections::{BTreeMap, HashMap, VecDeque};

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, Seq, ShardId};
use crate::relay::number_map::NumberSet;
use crate::relay::settle::locked;
use crate::relay::store_tasks::StoreTasks;
use crate::store::{Pending, RowLease, Starts, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::verdict::Failure;

/// Rows of each shard that are suspects, however many there are in others.
const AT_LEAST: u32 = 64;

/// Something that may have killed a relay.
pub(crate) trait Suspect {
    fn row(&self) -> RowLease;
}

#[derive(Debug)]
pub(crate) struct CrashGuard<T> {
    /// An event is given up after so many crashes.
    max_crashes: u32,
    observers: Observers,
    /// To be counted and begun together.
    waiting: Vec<T>,
    /// To be counted and begun alone.
    alone: VecDeque<T>,
    count: Option<Count<T>>,
    /// One that is to be alone is under way.
    is_alone: bool,
}

/// A write under way that counts.
#[derive(Debug)]
struct Count<T> {
    suspects: Vec<T>,
    are_alone: bool,
}

/// What to do with one that was counted.
#[derive(Debug)]
pub(crate) enum Action {
    Start,
    GiveUp(Failure),
    /// It was not counted: the answer is missing, another transaction has it locked, or somebody
    /// has decided on it meanwhile.
    PutBack,
}

impl<T: Suspect> CrashGuard<T> {
    pub(crate) fn new(max_crashes: u32, observers: Observers) -> Self {
        let (waiting, alone) = (Vec::new(), VecDeque::new());
        Self { max_crashes, observers, waiting, alone, count: None, is_alone: false }
    }

    pub(crate) fn push(&mut self, suspect: T) {
        self.waiting.push(suspect);
    }

    /// How many are begun as soon as they are counted.
    pub(crate) fn to_begin(&self) -> usize {
        self.waiting.len() + self.count.as_ref().map_or(0, |count| count.suspects.len())
    }

    /// Whether nothing may start now, because one event is alone or is to be.
    pub(crate) fn waits_alone(&mut self, is_idle: bool) -> bool {
        self.is_alone = self.is_alone && !is_idle;
        let counts_one = self.count.as_ref().is_some_and(|count| count.are_alone);
        self.is_alone || counts_one || !self.alone.is_empty()
    }

    pub(crate) fn is_counting(&self) -> bool {
        self.count.is_some()
    }

    /// Has those counted that are about to be begun: together, or one alone when all is quiet. What
    /// was delivered and not settled would die with it, and be blamed.
    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        is_quiet: bool,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<Counted>) -> A,
    ) {
        if let Some(starts) = self.next_count(is_quiet) {
            let store = tasks.store();
            tasks.call(async move { count(&*store, &starts).await }, answer);
        }
    }

    fn next_count(&mut self, is_quiet: bool) -> Option<Starts> {
        let are_alone = self.waiting.is_empty();
        if self.count.is_some() || (are_alone && !is_quiet) {
            return None;
        }
        let suspects = if are_alone {
            self.alone.pop_front().into_iter().collect()
        } else {
            std::mem::take(&mut self.waiting)
        };
        if suspects.is_empty() {
            return None;
        }
        let rows = suspects.iter().map(T::row).collect();
        self.count = Some(Count { suspects, are_alone });
        Some(Starts { rows, below: if are_alone { u32::MAX } else { 1 } })
    }

    /// What to do with those that were counted; the ones that were counted before go on waiting.
    pub(crate) fn counted(&mut self, counted: Result<Counted>) -> Vec<(T, Action)> {
        let Some(Count { suspects, are_alone, .. }) = self.count.take() else { return Vec::new() };
        let counted = match counted {
            Ok(counted) => counted,
            Err(error) => {
                self.observers.on_event(&RelayEvent::failed(Component::Read, &error));
                return suspects.into_iter().map(|suspect| (suspect, Action::PutBack)).collect();
            }
        };
        let mut actions = Vec::new();
        for suspect in suspects {
            let seq = suspect.row().seq;
            let action = match counted.times.get(&seq) {
                Some(times) if are_alone && *times >= self.max_crashes => {
                    Action::GiveUp(crash_loop(*times))
                }
                Some(_) => Action::Start,
                None if are_alone || counted.locked.contains(&seq) => Action::PutBack,
                None => {
                    self.alone.push_back(suspect);
                    continue;
                }
            };
            self.is_alone |= are_alone && matches!(action, Action::Start);
            actions.push((suspect, action));
        }
        actions
    }

    /// Those that wait, without the ones in a count under way.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(&T) -> bool) {
        self.waiting.retain(&mut stays);
        self.alone.retain(&mut stays);
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let counting = self.count.iter().flat_map(|count| &count.suspects);
        self.waiting.iter().chain(&self.alone).chain(counting)
    }
}

/// What the store says of rows that it was to count.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    /// How often each was counted that it has counted now.
    times: HashMap<Seq, u32>,
    /// Those of the others that another transaction has locked.
    locked: NumberSet<Seq>,
}

async fn count(store: &dyn Store, starts: &Starts) -> Result<Counted> {
    crash_point!("count.before"?);
    let times: HashMap<Seq, u32> = store.record_starts(starts).await?.into_iter().collect();
    crash_point!("count.after"?);
    let locked = locked::skipped(store, &starts.rows, |seq| times.contains_key(&seq)).await?;
    Ok(Counted { times, locked })
}

fn crash_loop(times: u32) -> Failure {
    Failure::dead(format!(
        "crash_loop: {} relays in a row died in its delivery, the last ones with nothing else \
         under way",
        times - 1
    ))
}

/// One of the first rows of a shard whose last owner died. Only rows that were due at the takeover
/// can have been in delivery, and these are the first of each shard.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) row: Pending,
    pub(crate) epoch: Epoch,
}

impl Suspect for TakenOver {
    fn row(&self) -> RowLease {
        RowLease::from(&self.row)
    }
}

/// Shards that were taken over from an owner that died.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    /// How many more rows of a shard are suspects in any case.
    left: BTreeMap<ShardId, u32>,
    /// How many more are, of all these shards together.
    more: u32,
}

impl Takeovers {
    /// The owner of these shards has died, with at most so many events unsettled.
    pub(crate) fn add(&mut self, shards: Vec<ShardId>, most_unsettled: u32) {
        if !shards.is_empty() {
            self.left.extend(shards.into_iter().map(|shard| (shard, AT_LEAST)));
            self.more = most_unsettled.saturating_mul(2);
        }
    }

    /// Whether the next row of a shard is a suspect; if so, it is counted as one.
    pub(crate) fn takes(&mut self, shard: ShardId) -> bool {
        let Some(left) = self.left.get_mut(&shard) else { return false };
        if *left > 0 {
            *left -= 1;
        } else if self.more > 0 {
            self.more -= 1;
        } else {
            self.left.remove(&shard);
            return false;
        }
        true
    }

    /// A suspect was put back: the next row of the shard is one instead.
    pub(crate) fn put_back(&mut self, shard: ShardId) {
        *self.left.entry(shard).or_default() += 1;
    }

    pub(crate) fn retain(&mut self, is_ours: impl Fn(ShardId) -> bool) {
        self.left.retain(|shard, _| is_ours(*shard));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::id::Token;

    impl Suspect for i64 {
        fn row(&self) -> RowLease {
            RowLease { shard: ShardId(0), seq: Seq(*self), token: Token(1) }
        }
    }

    fn guard() -> CrashGuard<i64> {
        CrashGuard::new(3, Observers::default())
    }

    /// Which are counted now.
    fn count(guard: &mut CrashGuard<i64>, is_quiet: bool) -> Vec<i64> {
        let rows = guard.next_count(is_quiet).map(|starts| starts.rows).unwrap_or_default();
        rows.iter().map(|row| row.seq.0).collect()
    }

    fn answer(guard: &mut CrashGuard<i64>, counted: &[(i64, u32)]) -> Vec<(i64, String)> {
        let times = counted.iter().map(|(seq, times)| (Seq(*seq), *times)).collect();
        let actions =
            guard.counted(Ok(Counted { times, locked: NumberSet::default() })).into_iter();
        actions.map(|(suspect, action)| (suspect, format!("{action:?}"))).collect()
    }

    /// Two, of which the second was counted before.
    fn one_alone() -> CrashGuard<i64> {
        let mut guard = self::guard();
        [1, 2].into_iter().for_each(|suspect| guard.push(suspect));
        assert_eq!(count(&mut guard, false), [1, 2]);
        assert_eq!(answer(&mut guard, &[(1, 1)]), [(1, "Start".to_owned())]);
        guard
    }

    #[test]
    fn one_that_was_counted_before_is_begun_alone() {
        let mut guard = one_alone();
        assert!(guard.waits_alone(false), "it lets nothing else start");
        assert!(count(&mut guard, false).is_empty(), "nor starts beside anything");

        assert_eq!(count(&mut guard, true), [2]);
        assert!(guard.waits_alone(true), "while it is counted");
        assert_eq!(answer(&mut guard, &[(2, 2)]), [(2, "Start".to_owned())]);

        assert!(guard.waits_alone(false), "while it is delivered");
        assert!(!guard.waits_alone(true));
    }

    #[test]
    fn one_that_was_counted_too_often_is_given_up() {
        let mut guard = one_alone();
        count(&mut guard, true);

        let actions = answer(&mut guard, &[(2, 3)]);

        assert!(actions[0].1.contains("crash_loop: 2 relays"), "{actions:?}");
        assert!(!guard.waits_alone(false));
    }

    #[test]
    fn one_that_was_decided_on_meanwhile_is_put_back() {
        let mut guard = one_alone();
        count(&mut guard, true);

        assert_eq!(answer(&mut guard, &[]), [(2, "PutBack".to_owned())]);
    }

    #[test]
    fn one_that_is_locked_keeps_nobody_waiting() {
        let mut guard = self::guard();
        [1, 2].into_iter().for_each(|suspect| guard.push(suspect));
        count(&mut guard, false);

        let times = [(Seq(1), 1)].into();
        let actions = guard.counted(Ok(Counted { times, locked: [Seq(2)].into_iter().collect() }));

        let actions: Vec<String> = actions.iter().map(|action| format!("{action:?}")).collect();
        assert_eq!(actions, ["(1, Start)", "(2, PutBack)"]);
        assert!(!guard.waits_alone(false));
    }

    #[test]
    fn without_an_answer_all_are_put_back() {
        let mut guard = self::guard();
        [1, 2].into_iter().for_each(|suspect| guard.push(suspect));
        count(&mut guard, false);
        guard.push(3);
        assert_eq!(guard.to_begin(), 3);

        let actions = guard.counted(Err(Error::new(ErrorKind::Unavailable, "gone")));

        assert!(actions.iter().all(|(_, action)| matches!(action, Action::PutBack)));
        assert_eq!((actions.len(), guard.to_begin(), guard.iter().count()), (2, 1, 1));
    }
}
