//! Statements about leases of relays and the shards that they own.

use super::alive;

pub(in super::super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values (?, utc_timestamp(6) + interval ? microsecond, ?, ?)
on duplicate key update lease_until = values(lease_until),
    lease_length = values(lease_length), wants = values(wants)";

pub(in super::super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = utc_timestamp(6) + interval ? microsecond, lease_length = ?, wants = ?
where owner = ?";

pub(in super::super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit ?"
);

/// Moves are rare: one row lock lets them happen one after the other.
/// Whoever holds it also knows that the mode stays as it is.
pub(in super::super) const LOCK_SETTING: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 for update";

/// Owners whose lease was written by a clock that was ahead.
pub(in super::super) const OWNERS_AHEAD: &str = concat!(
    "select owner from {p}outbox_owner where lease_until > utc_timestamp(6) and not (",
    alive!(),
    ")"
);

/// Their leases on rows were written by the same clock; rows that wait have none. Walks over all
/// new rows, and runs only where there is such an owner. A row that somebody has locked does not
/// hold the takeover up.
pub(in super::super) const LEASES_AHEAD: &str = "
select seq from {p}outbox_event force index ({p}outbox_event_ready)
where status = {new} and json_contains(?, json_quote(locked_by))
for update skip locked";

pub(in super::super) const END_ROW_LEASES: &str = "
update json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
set e.locked_until = '1970-01-01'";

pub(in super::super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(in super::super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = ?) as entered";

/// Without a lock, which would wait for every shard that a living owner settles in: moves happen
/// one after the other, so what is free here is free until TAKE.
/// MySQL looks in a document for a document, not for a number: hence the text.
pub(in super::super) const FREE_SHARDS: &str = "
select s.shard, s.epoch, s.owner is not null and s.owner <> ? as lapsed
from {p}outbox_shard s
where s.owner is null
   or s.owner = ? and not json_contains(?, cast(s.shard as char))
   or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
order by s.shard
limit ?";

/// In order of shard, as every statement that locks shards, so that none waits in a circle.
/// The lock waits for a settle under way: its verdicts count, later ones do not.
pub(in super::super) const ACQUIRE_SHARDS: &str = "
update json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) f
straight_join {p}outbox_shard s on s.shard = f.shard
set s.owner = ?, s.epoch = s.epoch + 1
where s.epoch = f.epoch";

pub(in super::super) const RELEASE: &str = "
update json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) h
straight_join {p}outbox_shard s on s.shard = h.shard
set s.owner = null
where s.owner = ? and s.epoch = h.epoch";

pub(in super::super) const RELEASE_ALL: &str =
    "update {p}outbox_shard set owner = null where owner = ? order by shard";

pub(in super::super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = ?";
