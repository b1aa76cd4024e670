//! Fair share: who should hold how many shards, and when to take or shed. Pure, no I/O.
//!
//! The shares of all members add up to all shards, so that none stays without an owner. A member
//! that came lately wants few at first and doubles with every heartbeat it survives: one that
//! crashes again and again costs the others little.

#[cfg(test)]
mod tests;

use std::{cmp::Reverse, collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use crate::id::OwnerId;
use crate::store::Member;

/// Heartbeats for which the members must stay the same before anything is shed.
const STABLE: u32 = 2;

/// Heartbeats in a lease. A shard that nobody takes for so long is taken by anyone.
const LEASE: u32 = 3;

/// What one owner remembers from beat to beat.
#[derive(Debug)]
pub(crate) struct Balance {
    heartbeat: Duration,
    joined: Instant,
    members: BTreeSet<OwnerId>,
    /// Since when the members are these.
    since: Instant,
    shed_at: Option<Instant>,
    /// Since when there are shards that no member holds.
    short_since: Option<Instant>,
}

/// How things stand at a beat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    pub(crate) owner: &'a OwnerId,
    pub(crate) members: &'a [Member],
    /// How many shards there are.
    pub(crate) shards: u16,
    /// How many of them the owner holds and means to keep.
    pub(crate) kept: u16,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Move {
    /// Take up to so many shards that have no living owner.
    Take(u16),
    /// Drain so many shards and give them back.
    Shed(u16),
    Stay,
}

impl Balance {
    pub(crate) fn new(heartbeat: Duration, now: Instant) -> Self {
        Self {
            heartbeat,
            joined: now,
            members: BTreeSet::new(),
            since: now,
            shed_at: None,
            short_since: None,
        }
    }

    /// How many shards the others should make free for this owner: one, and twice as many with
    /// every heartbeat survived.
    pub(crate) fn wants(&self, shards: u16, now: Instant) -> u16 {
        let survived = self.heartbeats(self.joined, now);
        1_u16.checked_shl(survived).map_or(shards, |wants| wants.min(shards))
    }

    pub(crate) fn next(&mut self, view: View<'_>, now: Instant) -> Move {
        self.note(view, now);
        let share = share_of(view.owner, view.members, view.shards);
        if view.kept < share {
            return Move::Take(share - view.kept);
        }
        if self.short_since.is_some_and(|since| self.heartbeats(since, now) >= LEASE) {
            return Move::Take(view.shards.saturating_sub(view.kept));
        }
        let surplus = view.kept - share;
        if surplus == 0 || !self.may_shed(now) {
            return Move::Stay;
        }
        self.shed_at = Some(now);
        Move::Shed((surplus / 4).max(1))
    }

    fn note(&mut self, view: View<'_>, now: Instant) {
        let members = view.members.iter().map(|member| member.owner.clone()).collect();
        if self.members != members {
            (self.members, self.since) = (members, now);
        }
        let held: u32 = view.members.iter().map(|member| u32::from(member.owned)).sum();
        let is_short = held < u32::from(view.shards);
        self.short_since = is_short.then(|| self.short_since.unwrap_or(now));
    }

    fn may_shed(&self, now: Instant) -> bool {
        let is_stable = self.heartbeats(self.since, now) >= STABLE;
        is_stable && self.shed_at.is_none_or(|last| self.heartbeats(last, now) >= 1)
    }

    fn heartbeats(&self, since: Instant, now: Instant) -> u32 {
        let heartbeats = (now - since).as_nanos() / self.heartbeat.as_nanos().max(1);
        u32::try_from(heartbeats).unwrap_or(u32::MAX)
    }
}

/// How many shards an owner should hold: as many as every other, or what it wants if that is
/// less. Of those who should hold as many, one more goes to who holds most already, then to the
/// oldest.
fn share_of(owner: &OwnerId, members: &[Member], shards: u16) -> u16 {
    let level = shares(members, shards, u16::MAX).last().map_or(0, |(_, share)| *share);
    let shares = shares(members, shards, level);
    shares.into_iter().find(|(member, _)| *member == owner).map_or(0, |(_, share)| share)
}

/// The shares of all members, the smallest first. Wants above `level` count as the same.
fn shares(members: &[Member], shards: u16, level: u16) -> Vec<(&OwnerId, u16)> {
    let factor = factor(members, shards);
    let wants = |member: &Member| {
        let wants = u32::from(member.wants).saturating_mul(factor).min(u32::from(level));
        u16::try_from(wants).unwrap_or(level)
    };
    let mut order: Vec<&Member> = members.iter().collect();
    order.sort_by_key(|member| (wants(member), member.owned, Reverse(&member.owner)));
    let (mut left, mut sharing) = (shards, u16::try_from(order.len()).unwrap_or(u16::MAX));
    let mut shares = Vec::with_capacity(order.len());
    for member in order {
        let share = wants(member).min(left / sharing.max(1));
        (left, sharing) = (left - share, sharing.saturating_sub(1));
        shares.push((&member.owner, share));
    }
    shares
}

/// Wants bound what is shed, not what nobody else would hold: where all of them together are
/// less than all shards, each counts for more, until they are enough.
fn factor(members: &[Member], shards: u16) -> u32 {
    let wanted: u32 = members.iter().map(|member| u32::from(member.wants)).sum();
    let mut factor = 1;
    while wanted > 0 && wanted * factor < u32::from(shards) {
        factor *= 2;
    }
    factor
}
