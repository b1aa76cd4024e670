//! Statements that count events.

use super::alive;

/// Walks over entries of the index only.
pub(in super::super) const STATS: &str = concat!(
    "
select
    count(case status when {new} then 1 end) as new,
    count(case status when {waiting} then 1 end) as waiting,
    count(case status when {held} then 1 end) as held,
    timestampdiff(microsecond,
        min(case when status in ({new}, {waiting}) and available_at <= utc_timestamp(6) then available_at end),
        utc_timestamp(6)) as oldest_lag,
    count(case status when {dead} then 1 end) as dead,
    (select count(*) from {p}outbox_owner where ",
    alive!(),
    ") as owners,
    (select count(*) from {p}outbox_shard s
        join {p}outbox_owner who on who.owner = s.owner and ",
    alive!(),
    "
    ) as owned_shards
from {p}outbox_event force index ({p}outbox_event_ready)
where status in ({new}, {waiting}, {dead}, {held})"
);

pub(in super::super) const COUNT_DONE: &str = "select count(*) from {p}outbox_event force index ({p}outbox_event_ready) where status = {done}";

/// Counted in the order of the indexes; of a shard and a status there is one count.
pub(in super::super) const SHARD_STATS: &str = "
select
    s.shard, s.owner, s.epoch,
    coalesce(max(case c.status when {new} then c.events end), 0) as new,
    coalesce(max(case c.status when {waiting} then c.events end), 0) as waiting,
    coalesce(max(case c.status when {held} then c.events end), 0) as held,
    timestampdiff(microsecond, min(c.oldest), utc_timestamp(6)) as oldest_lag
from {p}outbox_shard s
left join (
    select
        e.status, e.pending_shard as shard, count(*) as events,
        min(case when e.available_at <= utc_timestamp(6) then e.available_at end) as oldest
    from {p}outbox_event e force index ({p}outbox_event_ready)
    where e.status in ({new}, {waiting})
    group by e.status, e.pending_shard
    union all
    select e.status, e.shard, count(*), null
    from {p}outbox_event e force index ({p}outbox_event_key)
    where e.status = {held}
    group by e.status, e.shard
) c on c.shard = s.shard
group by s.shard, s.owner, s.epoch
order by s.shard";

pub(in super::super) const TYPE_STATS: &str = "
select
    event_type,
    count(case status when {new} then 1 end) as new,
    count(case status when {waiting} then 1 end) as waiting,
    count(case status when {held} then 1 end) as held,
    count(case status when {dead} then 1 end) as dead
from {p}outbox_event force index ({p}outbox_event_ready)
where status in ({new}, {waiting}, {dead}, {held})
group by event_type
order by count(*) desc, event_type
limit ?";
