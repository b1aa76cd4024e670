//! Shares add up, wants bound them, and nobody sheds before the others are known to stay.

use proptest::prelude::*;

use super::*;
use crate::clock::instant;

const BEAT: Duration = Duration::from_secs(5);

fn member(owner: &OwnerId, wants: u16, owned: u16) -> Member {
    Member { owner: owner.clone(), wants, owned }
}

/// Members in order of age, each with what it wants and holds.
fn members(of: &[(u16, u16)]) -> Vec<Member> {
    let mut owners: Vec<OwnerId> = of.iter().map(|_| OwnerId::generate()).collect();
    owners.sort();
    owners.iter().zip(of).map(|(owner, (wants, held))| member(owner, *wants, *held)).collect()
}

fn each(members: &[Member], shards: u16) -> Vec<u16> {
    members.iter().map(|member| share_of(&member.owner, members, shards)).collect()
}

#[test]
fn one_alone_has_them_all() {
    assert_eq!(each(&members(&[(1, 0)]), 64), [64]);
}

#[test]
fn the_one_more_goes_to_who_holds_it_and_else_to_the_oldest() {
    assert_eq!(each(&members(&[(64, 0), (64, 0), (64, 0)]), 64), [22, 21, 21]);
    assert_eq!(each(&members(&[(64, 21), (64, 21), (64, 22)]), 64), [21, 21, 22]);
    assert_eq!(each(&members(&[(64, 22), (64, 22), (64, 20)]), 64), [22, 21, 21]);
    assert_eq!(each(&members(&[(1, 0), (1, 1)]), 1), [0, 1], "a lone shard stays where it is");
}

#[test]
fn a_newcomer_has_what_it_wants_and_the_others_the_rest() {
    assert_eq!(each(&members(&[(64, 64), (1, 0)]), 64), [63, 1]);
    assert_eq!(each(&members(&[(64, 32), (64, 32), (4, 0)]), 64), [30, 30, 4]);
    assert_eq!(each(&members(&[(64, 21), (64, 21), (32, 22)]), 64), [21, 21, 22]);
}

#[test]
fn newcomers_among_themselves_share_everything_at_once() {
    assert_eq!(each(&members(&[(1, 0), (1, 0), (1, 0), (1, 0)]), 64), [16, 16, 16, 16]);
    assert_eq!(each(&members(&[(4, 64), (1, 0)]), 64), [48, 16], "by how long they have lived");
}

#[test]
fn of_more_members_than_shards_the_rest_has_none() {
    let all = each(&members(&[(64, 0); 70]), 64);

    assert_eq!(all.iter().filter(|share| **share == 1).count(), 64);
    assert_eq!(all.iter().filter(|share| **share == 0).count(), 6);
}

#[test]
fn who_is_no_member_has_no_share() {
    assert_eq!(share_of(&OwnerId::generate(), &members(&[(64, 0)]), 64), 0);
    assert_eq!(share_of(&OwnerId::generate(), &[], 64), 0);
}

proptest! {
    #[test]
    fn shares_add_up_to_all_shards(
        of in prop::collection::vec((1_u16..=64, 0_u16..=64), 1..80),
        shards in 1_u16..=64,
    ) {
        prop_assert_eq!(each(&members(&of), shards).iter().sum::<u16>(), shards);
    }

    #[test]
    fn those_who_want_enough_differ_by_one_at_most(
        held in prop::collection::vec(0_u16..=64, 1..80),
    ) {
        let count = u16::try_from(held.len()).unwrap();
        let of: Vec<_> = held.into_iter().map(|held| (64, held)).collect();

        for share in each(&members(&of), 64) {
            prop_assert!(share >= 64 / count && share <= 64_u16.div_ceil(count));
        }
    }

    /// Whatever they begin with, shedding and taking come to an end, with fair shares.
    #[test]
    fn moves_come_to_rest(begin in prop::collection::vec(0_u16..=20, 2..6)) {
        let mut all: Vec<Member> =
            members(&begin.iter().map(|held| (64, *held)).collect::<Vec<_>>());
        let mut free = 120 - begin.iter().sum::<u16>();
        for _ in 0..200 {
            for at in 0..all.len() {
                let share = share_of(&all[at].owner, &all, 120);
                let taken = share.saturating_sub(all[at].owned).min(free);
                let shed = all[at].owned.saturating_sub(share).div_ceil(4);
                all[at].owned = all[at].owned + taken - shed;
                free = free + shed - taken;
            }
        }

        let shares: Vec<u16> = all.iter().map(|member| member.owned).collect();
        prop_assert_eq!(free, 0);
        prop_assert_eq!(each(&all, 120), shares, "nobody would move any more");
    }
}

#[test]
fn nothing_is_shed_before_the_members_were_the_same_for_two_heartbeats() {
    let start = instant();
    let mut balance = Balance::new(BEAT, start);
    let two = members(&[(64, 64), (64, 0)]);
    let mut at = |beats: u32, members: &[Member]| {
        let view = View { owner: &two[0].owner, members, shards: 64, kept: 64 };
        balance.next(view, start + BEAT * beats)
    };

    assert_eq!(at(0, &two[..1]), Move::Stay);
    assert_eq!(at(5, &two), Move::Stay);
    assert_eq!(at(6, &two), Move::Stay);
    assert_eq!(at(7, &two), Move::Shed(8), "a quarter of what is too much");
    assert_eq!(at(8, &two[..1]), Move::Stay, "the other is gone");
    assert_eq!(at(9, &two), Move::Stay, "and back, or another");
    assert_eq!(at(11, &two), Move::Shed(8));
}

#[test]
fn shedding_goes_on_once_per_heartbeat() {
    let start = instant();
    let mut balance = Balance::new(BEAT, start);
    let two = members(&[(64, 64), (64, 0)]);
    let mut at = |time: Duration, kept: u16| {
        let view = View { owner: &two[0].owner, members: &two, shards: 64, kept };
        balance.next(view, start + time)
    };

    at(Duration::ZERO, 64);
    assert_eq!(at(BEAT * 2, 64), Move::Shed(8));
    assert_eq!(at(BEAT * 2 + BEAT / 2, 56), Move::Stay);
    assert_eq!(at(BEAT * 3, 56), Move::Shed(6));
    assert_eq!(at(BEAT * 4, 33), Move::Shed(1), "at least one");
    assert_eq!(at(BEAT * 5, 32), Move::Stay);
}

#[test]
fn a_newcomer_wants_twice_as_many_with_every_heartbeat() {
    let start = instant();
    let balance = Balance::new(BEAT, start);
    let wants = |beats: u32| balance.wants(64, start + BEAT * beats);

    assert_eq!([0, 1, 2, 3, 6, 7, 15, 16, 99].map(wants), [1, 2, 4, 8, 64, 64, 64, 64, 64]);
    assert_eq!(balance.wants(1, start + BEAT * 3), 1);
}

#[test]
fn what_is_free_is_taken_up_to_the_share() {
    let start = instant();
    let mut balance = Balance::new(BEAT, start);
    let two = members(&[(1, 0), (1, 0)]);
    let view = View { owner: &two[0].owner, members: &two, shards: 64, kept: 30 };

    assert_eq!(balance.next(view, start), Move::Take(2));
}

#[test]
fn what_nobody_takes_for_a_lease_is_taken_by_anyone() {
    let start = instant();
    let mut balance = Balance::new(BEAT, start);
    let two = members(&[(64, 32), (64, 0)]);
    let mut at = |beats: u32| {
        let view = View { owner: &two[0].owner, members: &two, shards: 64, kept: 32 };
        balance.next(view, start + BEAT * beats)
    };

    assert_eq!((at(0), at(2)), (Move::Stay, Move::Stay));
    assert_eq!(at(3), Move::Take(32), "the other lives, and takes nothing");
}
