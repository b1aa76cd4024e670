//! Suspects: rows that a relay may have died of, from their count to their start.
//!
//! They are counted right before they start and never while they wait, for what waits behind the
//! cause would be blamed with it. One that was counted before is begun alone: nothing beside it can
//! be the cause, and it is blamed for nothing beside it. After too many counts it is given up.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::task::Id;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::Seq;
use crate::relay::fetch::shard_reader::no_answer;
use crate::relay::number_map::NumberSet;
use crate::relay::settle::locked;
use crate::store::{RowLease, Starts, Store};
use crate::verdict::Failure;

/// Something that may have killed a relay.
pub(crate) trait Suspect {
    fn row(&self) -> RowLease;
}

#[derive(Debug)]
pub(crate) struct CrashGuard<T> {
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
    id: Id,
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

impl<T> Default for CrashGuard<T> {
    fn default() -> Self {
        Self { waiting: Vec::new(), alone: VecDeque::new(), count: None, is_alone: false }
    }
}

impl<T: Suspect> CrashGuard<T> {
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

    /// Whether this task counts.
    pub(crate) fn is_counted_by(&self, id: Id) -> bool {
        self.count.as_ref().is_some_and(|count| count.id == id)
    }

    /// Has those counted that are about to be begun: together, or one alone when all is quiet. What
    /// was delivered and not settled would die with it, and be blamed.
    pub(crate) fn count(&mut self, is_quiet: bool, spawn: impl FnOnce(Starts) -> Id) {
        let are_alone = self.waiting.is_empty();
        if self.count.is_some() || (are_alone && !is_quiet) {
            return;
        }
        let suspects = if are_alone {
            self.alone.pop_front().into_iter().collect()
        } else {
            std::mem::take(&mut self.waiting)
        };
        if suspects.is_empty() {
            return;
        }
        let rows = suspects.iter().map(T::row).collect();
        let id = spawn(Starts { rows, below: if are_alone { u32::MAX } else { 1 } });
        self.count = Some(Count { id, suspects, are_alone });
    }

    /// What to do with those that were counted; the ones that were counted before go on waiting.
    pub(crate) fn counted(
        &mut self,
        counted: Result<Counted>,
        max_crashes: u32,
    ) -> Vec<(T, Action)> {
        let Some(Count { suspects, are_alone, .. }) = self.count.take() else { return Vec::new() };
        let Ok(counted) = counted else {
            return suspects.into_iter().map(|suspect| (suspect, Action::PutBack)).collect();
        };
        let mut fates = Vec::new();
        for suspect in suspects {
            let seq = suspect.row().seq;
            let fate = match counted.times.get(&seq) {
                Some(times) if are_alone && *times >= max_crashes => {
                    Action::GiveUp(crash_loop(*times))
                }
                Some(_) => Action::Start,
                None if are_alone || counted.locked.contains(&seq) => Action::PutBack,
                None => {
                    self.alone.push_back(suspect);
                    continue;
                }
            };
            self.is_alone |= are_alone && matches!(fate, Action::Start);
            fates.push((suspect, fate));
        }
        fates
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

/// Asks the store to count them, as long as it is worth waiting for.
pub(crate) async fn count(
    store: &dyn Store,
    asked: &Starts,
    patience: Duration,
) -> Result<Counted> {
    let counting = async {
        crash_point!("count.before"?);
        let times: HashMap<Seq, u32> = store.record_starts(asked).await?.into_iter().collect();
        crash_point!("count.after"?);
        let locked = locked::skipped(store, &asked.rows, |seq| times.contains_key(&seq)).await?;
        Ok(Counted { times, locked })
    };
    let counted = tokio::time::timeout(patience, counting).await;
    counted.unwrap_or_else(|_| Err(no_answer()))
}

fn crash_loop(times: u32) -> Failure {
    Failure::dead(format!(
        "crash_loop: {} relays in a row died in its delivery, the last ones with nothing else \
         under way",
        times - 1
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, ErrorKind};
    use crate::id::{ShardId, Token};

    impl Suspect for i64 {
        fn row(&self) -> RowLease {
            RowLease { shard: ShardId(0), seq: Seq(*self), token: Token(1) }
        }
    }

    /// Has those counted that can be. Returns which these are.
    async fn ask(counting: &mut CrashGuard<i64>, is_quiet: bool) -> Vec<i64> {
        let (task, mut asked) = (tokio::spawn(async {}), Vec::new());
        counting.count(is_quiet, |suspects| {
            asked = suspects.rows.iter().map(|row| row.seq.0).collect();
            task.id()
        });
        task.await.unwrap();
        asked
    }

    fn answer(counting: &mut CrashGuard<i64>, counted: &[(i64, u32)]) -> Vec<(i64, String)> {
        let times = counted.iter().map(|(seq, times)| (Seq(*seq), *times)).collect();
        let fates =
            counting.counted(Ok(Counted { times, locked: NumberSet::default() }), 3).into_iter();
        fates.map(|(suspect, fate)| (suspect, format!("{fate:?}"))).collect()
    }

    /// Two, of which the second was counted before.
    async fn one_alone() -> CrashGuard<i64> {
        let mut counting = CrashGuard::default();
        [1, 2].into_iter().for_each(|suspect| counting.push(suspect));
        assert_eq!(ask(&mut counting, false).await, [1, 2]);
        assert_eq!(answer(&mut counting, &[(1, 1)]), [(1, "ReadStart".to_owned())]);
        counting
    }

    #[tokio::test]
    async fn one_that_was_counted_before_is_begun_alone() {
        let mut counting = one_alone().await;
        assert!(counting.waits_alone(false), "it lets nothing else start");
        assert!(ask(&mut counting, false).await.is_empty(), "nor starts beside anything");

        assert_eq!(ask(&mut counting, true).await, [2]);
        assert!(counting.waits_alone(true), "while it is counted");
        assert_eq!(answer(&mut counting, &[(2, 2)]), [(2, "ReadStart".to_owned())]);

        assert!(counting.waits_alone(false), "while it is delivered");
        assert!(!counting.waits_alone(true));
    }

    #[tokio::test]
    async fn one_that_was_counted_too_often_is_given_up() {
        let mut counting = one_alone().await;
        ask(&mut counting, true).await;

        let fates = answer(&mut counting, &[(2, 3)]);

        assert!(fates[0].1.contains("crash_loop: 2 relays"), "{fates:?}");
        assert!(!counting.waits_alone(false));
    }

    #[tokio::test]
    async fn one_that_was_decided_on_meanwhile_is_put_back() {
        let mut counting = one_alone().await;
        ask(&mut counting, true).await;

        assert_eq!(answer(&mut counting, &[]), [(2, "PutBack".to_owned())]);
    }

    #[tokio::test]
    async fn one_that_is_locked_keeps_nobody_waiting() {
        let mut counting = CrashGuard::default();
        [1, 2].into_iter().for_each(|suspect| counting.push(suspect));
        ask(&mut counting, false).await;

        let times = [(Seq(1), 1)].into();
        let fates =
            counting.counted(Ok(Counted { times, locked: [Seq(2)].into_iter().collect() }), 3);

        let fates: Vec<String> = fates.iter().map(|fate| format!("{fate:?}")).collect();
        assert_eq!(fates, ["(1, ReadStart)", "(2, PutBack)"]);
        assert!(!counting.waits_alone(false));
    }

    #[tokio::test]
    async fn without_an_answer_all_are_put_back() {
        let mut counting = CrashGuard::default();
        [1, 2].into_iter().for_each(|suspect| counting.push(suspect));
        ask(&mut counting, false).await;
        counting.push(3);
        assert_eq!(counting.to_begin(), 3);

        let fates = counting.counted(Err(Error::new(ErrorKind::Unavailable, "gone")), 3);

        assert!(fates.iter().all(|(_, fate)| matches!(fate, Action::PutBack)));
        assert_eq!((fates.len(), counting.to_begin(), counting.iter().count()), (2, 1, 1));
    }
}
