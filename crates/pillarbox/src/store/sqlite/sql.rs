//! Every statement of the SQLite store; `{p}` is the table prefix.
//!
//! SQLite has one clock reading per statement and milliseconds at best; rows hold microseconds.

/// The newest migration laid down.
pub(super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

pub(super) const LAYOUT: &str = "select shards, claim from {p}outbox_setting where id = 1";

pub(super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, wants)
values (?1, cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 + ?2, ?3)
on conflict (owner) do update set lease_until = excluded.lease_until, wants = excluded.wants";

pub(super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 + ?2,
    wants = ?3
where owner = ?1";

pub(super) const REMOVE_LAPSED: &str = "
delete from {p}outbox_owner
where lease_until < cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000";

pub(super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = ?1) as entered";

/// Runs inside `begin immediate`, which is the lock: there is one writer.
pub(super) const FREE: &str = "
select s.shard, s.epoch, s.owner is not null and s.owner <> ?2 as lapsed
from {p}outbox_shard s
where s.owner is null
   or s.owner = ?2 and s.shard not in (select value from json_each(?3))
   or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
order by s.shard
limit ?1";

pub(super) const TAKE: &str =
    "update {p}outbox_shard set owner = ?1, epoch = epoch + 1 where shard = ?2";

pub(super) const RELEASE: &str =
    "update {p}outbox_shard set owner = null where owner = ?1 and shard = ?2 and epoch = ?3";

pub(super) const RELEASE_ALL: &str = "update {p}outbox_shard set owner = null where owner = ?1";

pub(super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = ?1";

/// Not-due and held rows come too: the head of a key counts whether it is due or not. The probe
/// runs above a floor only, in the same snapshot.
pub(super) const READ: &str = "
select
    e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts,
    e.available_at - cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000
        as due_in,
    ?2 > 0 and e.ordering_key is not null and exists (
        select 1 from {p}outbox_event o
        where o.ordering_key = e.ordering_key and o.seq <= ?2 and o.status in (0, 2, 4)
    ) as behind,
    e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.partition_key, e.tenant_id, e.payload, e.payload_bytes, e.content_type, e.headers,
    e.occurred_at
from {p}outbox_event e
where e.shard = ?1 and e.seq > ?2 and e.status in (0, 2, 4)
order by e.seq
limit ?3";

pub(super) const READ_KEY: &str = "
select
    e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts,
    e.available_at - cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000
        as due_in,
    false as behind,
    e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.partition_key, e.tenant_id, e.payload, e.payload_bytes, e.content_type, e.headers,
    e.occurred_at
from {p}outbox_event e
where e.shard = ?1 and e.ordering_key = ?2 and e.status in (0, 2, 4)
order by e.seq
limit ?3";

/// Runs inside `begin immediate`: nobody can take the shard before the verdicts are written.
pub(super) const FENCE: &str =
    "select exists (select 1 from {p}outbox_shard where shard = ?1 and owner = ?2 and epoch = ?3)";

/// Verdicts come as one JSON array of arrays, since SQLite has no arrays to bind.
pub(super) const SETTLE_DELETE: &str = "
delete from {p}outbox_event
where (seq, lock_token) in (
        select value ->> 0, value ->> 1 from json_each(?1)
    )
  and status in (0, 2)
returning seq";

/// `tried` is 1 where the attempt counts. The token grows with every verdict, so that a settle
/// which is repeated after an unknown outcome changes nothing.
pub(super) const SETTLE_MARK: &str = "
update {p}outbox_event as e
set status = v.status,
    attempts = min(e.attempts + v.tried, 2147483647),
    crashes = 0,
    available_at = case v.status
        when 2 then
            cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 + v.delay
        else e.available_at end,
    done_at = case v.status when 2 then null else
        cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 end,
    settled_by = v.route,
    last_error = coalesce(v.error, e.last_error),
    lock_token = e.lock_token % 2147483647 + 1
from (
    select value ->> 0 as seq, value ->> 1 as token, value ->> 2 as status, value ->> 3 as tried,
        value ->> 4 as delay, value ->> 5 as error, value ->> 6 as route
    from json_each(?1)
) as v
where e.seq = v.seq and e.lock_token = v.token and e.status in (0, 2)
returning seq";

/// The token grows, so that a verdict still under way cannot swallow the replay.
pub(super) const REPLAY: &str = "
update {p}outbox_event
set status = 0, attempts = 0, crashes = 0, done_at = null,
    lock_token = lock_token % 2147483647 + 1,
    available_at = cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000
where event_id in (select value from json_each(?1)) and status in (3, 4)";

/// Status and age stand on the DELETE itself too, as on every database.
pub(super) const PURGE: &str = "
delete from {p}outbox_event
where seq in (
        select seq from {p}outbox_event
        where status in (1, 3) and status = ?1
          and done_at < cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 - ?2
        order by done_at
        limit ?3
    )
  and status = ?1
  and done_at < cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 - ?2";

pub(super) const STATS: &str = "
with clock as (
    select cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 as now
)
select
    count(*) filter (where status = 0) as new,
    count(*) filter (where status = 2) as retry,
    count(*) filter (where status = 4) as held,
    (select now from clock)
        - min(available_at) filter (where status in (0, 2) and available_at <= (select now from clock))
        as oldest_lag,
    (select count(*) from {p}outbox_event where status in (1, 3) and status = 3) as dead,
    (select count(*) from {p}outbox_owner where lease_until >= (select now from clock)) as owners,
    (select count(*) from {p}outbox_shard s
        join {p}outbox_owner o on o.owner = s.owner
            and o.lease_until >= (select now from clock)
    ) as owned_shards
from {p}outbox_event
where status in (0, 2, 4)";

pub(super) const EVENT: &str = "
select
    seq, shard, ordering_key, lock_token, status, attempts, available_at, created_at, done_at,
    settled_by, last_error,
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload, payload_bytes, content_type, headers, occurred_at
from {p}outbox_event
where event_id = ?1";
