//! Counts of events.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use async_trait::async_trait;

use super::MemoryStore;
use super::event::Event;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OwnerId, ShardId};
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Statistics, Stats, Status, TypeStats};

#[async_trait]
impl Statistics for MemoryStore {
    async fn stats(&self) -> Result<Stats> {
        Ok(self.state().stats(self.clock.now()))
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        Ok(self.state().breakdown(self.clock.now()))
    }
}

impl State {
    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let living =
            |owner: &OwnerId| self.owners.get(owner).is_some_and(|entry| entry.is_alive(now));
        let owned = self.shards.iter().filter(|shard| shard.owner.as_ref().is_some_and(living));
        let all = || self.events.values();
        Stats {
            new: count(all(), Status::New),
            waiting: count(all(), Status::Waiting),
            held: count(all(), Status::Held),
            dead: count(all(), Status::Dead),
            oldest_lag: oldest_lag(all(), now),
            owners: self.living_owners(now),
            owned_shards: owned.count() as u64,
        }
    }

    pub(super) fn breakdown(&self, now: Timestamp) -> Breakdown {
        let mut types: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
        for event in self.events.values().filter(|event| event.status != Status::Done) {
            types.entry(event.envelope.event_type().as_str()).or_default().push(event);
        }
        let mut types: Vec<_> = types.into_iter().collect();
        types.sort_by_key(|(_, events)| Reverse(events.len()));
        types.truncate(MAX_TYPES);
        Breakdown {
            done: count(self.events.values(), Status::Done),
            shards: (0..)
                .map(ShardId)
                .zip(&self.shards)
                .map(|(id, shard)| {
                    let events = || self.events.values().filter(move |event| event.shard == id);
                    ShardStats {
                        shard: id,
                        owner: shard.owner.clone(),
                        epoch: shard.epoch,
                        new: count(events(), Status::New),
                        waiting: count(events(), Status::Waiting),
                        held: count(events(), Status::Held),
                        oldest_lag: oldest_lag(events(), now),
                    }
                })
                .collect(),
            types: types
                .into_iter()
                .map(|(event_type, events)| type_stats(event_type, &events))
                .collect(),
        }
    }
}

fn type_stats(event_type: &str, events: &[&Event]) -> TypeStats {
    let count = |status| count(events.iter().copied(), status);
    TypeStats {
        event_type: event_type.to_owned(),
        new: count(Status::New),
        waiting: count(Status::Waiting),
        held: count(Status::Held),
        dead: count(Status::Dead),
    }
}

fn count<'e>(events: impl Iterator<Item = &'e Event>, status: Status) -> u64 {
    events.filter(|event| event.status == status).count() as u64
}

fn oldest_lag<'e>(
    events: impl Iterator<Item = &'e Event>,
    now: Timestamp,
) -> Option<std::time::Duration> {
    let due = events.filter(|event| event.is_open() && event.available_at <= now);
    due.map(|event| now.since(event.available_at)).max()
}
