//! Statements about leases of relays and the shards that they own.

use super::alive;

pub(in super::super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values ($1, clock_timestamp() + $2 * interval '1 microsecond', $2, $3)
on conflict (owner) do update
set lease_until = excluded.lease_until, lease_length = excluded.lease_length,
    wants = excluded.wants";

pub(in super::super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = clock_timestamp() + $2 * interval '1 microsecond', lease_length = $2,
    wants = $3
where owner = $1";

pub(in super::super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit $1"
);

/// A move that cannot get a lock gives up soon: the relay must renew meanwhile. One that has the lock
/// and falls silent is ended by the server, or nobody could take over from a machine that is frozen
/// or cut off until the network notices, which may take hours.
pub(in super::super) const LIMIT_WAITS: &str =
    "set local lock_timeout = '3s'; set local idle_in_transaction_session_timeout = '5s'";

/// Moves are rare: one row lock lets them happen one after the other.
/// Whoever holds it also knows that the mode stays as it is.
pub(in super::super) const LOCK_SETTING: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 for update";

/// Owners whose lease was written by a clock that was ahead.
pub(in super::super) const OWNERS_AHEAD: &str = concat!(
    "select owner from {p}outbox_owner where lease_until > clock_timestamp() and not (",
    alive!(),
    ")"
);

/// Their leases on rows were written by the same clock. Walks over all that is new, and runs only
/// where there is such an owner: no other row is leased. A row that somebody has locked does not hold the takeover up.
pub(in super::super) const END_ROW_LEASES: &str = "
update {p}outbox_event
set locked_until = to_timestamp(0)
where ctid = any(array(
        select ctid from {p}outbox_event
        where status = {new} and shard >= 0 and locked_by = any($1)
        for update skip locked
    ))";

pub(in super::super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(in super::super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = $1) as entered";

/// In order of shard, as every statement that locks shards, so that none waits in a circle.
/// The lock waits for a settle under way: its verdicts count, later ones do not.
pub(in super::super) const ACQUIRE_SHARDS: &str = "
with free as materialized (
    select s.shard, s.owner is not null and s.owner <> $1 as lapsed
    from {p}outbox_shard s
    where s.owner is null
       or s.owner = $1 and s.shard <> all($3)
       or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
    order by s.shard
    limit $2
    for update of s
)
update {p}outbox_shard s
set owner = $1, epoch = s.epoch + 1
from free
where s.shard = free.shard
returning s.shard, s.epoch, free.lapsed";

pub(in super::super) const RELEASE: &str = "
with held as materialized (
    select s.shard
    from {p}outbox_shard s
    join unnest($2::smallint[], $3::bigint[]) as h (shard, epoch) on h.shard = s.shard
    where s.owner = $1 and s.epoch = h.epoch
    order by s.shard
    for update of s
)
update {p}outbox_shard s set owner = null from held where s.shard = held.shard";

pub(in super::super) const RELEASE_ALL: &str = "
with held as materialized (
    select shard from {p}outbox_shard where owner = $1 order by shard for update
)
update {p}outbox_shard s set owner = null from held where s.shard = held.shard";

pub(in super::super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = $1";
