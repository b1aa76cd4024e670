//! Statements about leases of relays and the shards that they own.

use super::alive;

pub(in super::super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values (?1, {now} + ?2, ?2, ?3)
on conflict (owner) do update
set lease_until = excluded.lease_until, lease_length = excluded.lease_length,
    wants = excluded.wants";

pub(in super::super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = {now} + ?2, lease_length = ?2, wants = ?3
where owner = ?1";

pub(in super::super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit +?1"
);

/// Runs inside `begin immediate`, which is the lock: the mode stays as it is until the end.
pub(in super::super) const SETTING: &str =
    "select claim, ordered from {p}outbox_setting where id = 1";

/// Owners whose lease was written by a clock that was ahead.
pub(in super::super) const OWNERS_AHEAD: &str =
    concat!("select owner from {p}outbox_owner where lease_until > {now} and not (", alive!(), ")");

/// Their leases on rows were written by the same clock; rows that wait have none. Walks over all new
/// rows, and runs only where there is such an owner.
pub(in super::super) const END_ROW_LEASES: &str = "
update {p}outbox_event
set locked_until = 0
where shard = 0 and status = {new} and locked_by in (select value from json_each(?1))";

pub(in super::super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(in super::super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = ?1) as entered";

/// Runs inside `begin immediate`, which is the lock: there is one writer.
pub(in super::super) const FREE_SHARDS: &str = "
select s.shard, s.epoch, s.owner is not null and s.owner <> ?2 as lapsed
from {p}outbox_shard s
where s.owner is null
   or s.owner = ?2 and s.shard not in (select value from json_each(?3))
   or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
order by s.shard
limit +?1";

pub(in super::super) const ACQUIRE_SHARDS: &str =
    "update {p}outbox_shard set owner = ?1, epoch = epoch + 1 where shard = ?2";

pub(in super::super) const RELEASE: &str =
    "update {p}outbox_shard set owner = null where owner = ?1 and shard = ?2 and epoch = ?3";

pub(in super::super) const RELEASE_ALL: &str =
    "update {p}outbox_shard set owner = null where owner = ?1";

pub(in super::super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = ?1";
