//! Statements that count events.

use super::alive;

/// Everything that is not done, as its own index has it. The conditions that are always met lead the
/// planner to the partial indexes, also before it has gathered statistics.
macro_rules! not_done {
    ($columns:literal) => {
        concat!(
            "
    select ",
            $columns,
            " from {p}outbox_event
    where status = {new} and shard >= 0
    union all
    select ",
            $columns,
            " from {p}outbox_event
    where status = {waiting} and shard >= 0
    union all
    select ",
            $columns,
            " from {p}outbox_event
    where status in ({dead}, {held}) and done_at > '-infinity'"
        )
    };
}

/// Counts in the indexes, without a look at the rows. The oldest is looked for among those in front
/// of each shard's line, and is exact while the line is short.
pub(in super::super) const STATS: &str = concat!(
    "
select
    (select count(*) from {p}outbox_event where status = {new} and shard >= 0) as new,
    (select count(*) from {p}outbox_event where status = {waiting} and shard >= 0) as waiting,
    (select count(*) from {p}outbox_event
        where status in ({dead}, {held}) and status = {held} and done_at > '-infinity') as held,
    (select count(*) from {p}outbox_event
        where status in ({dead}, {held}) and status = {dead} and done_at > '-infinity') as dead,
    (select extract(epoch from clock_timestamp() - min(e.available_at)) * 1000000
        from {p}outbox_shard s
        cross join lateral (
            (select e.available_at from {p}outbox_event e
            where e.shard = s.shard and e.status = {new}
            order by e.seq
            limit 100)
            union all
            (select e.available_at from {p}outbox_event e
            where e.shard = s.shard and e.status = {waiting}
            order by e.available_at, e.seq
            limit 1)
        ) e
        where e.available_at <= clock_timestamp())::bigint as oldest_lag,
    (select count(*) from {p}outbox_owner where ",
    alive!(),
    ") as owners,
    (select count(*) from {p}outbox_shard s
        join {p}outbox_owner o on o.owner = s.owner and ",
    alive!(),
    "
    ) as owned_shards"
);

pub(in super::super) const COUNT_DONE: &str =
    "select count(*) from {p}outbox_event where status = {done}";

pub(in super::super) const SHARD_STATS: &str = concat!(
    "
select
    s.shard, s.owner, s.epoch,
    count(*) filter (where e.status = {new}) as new,
    count(*) filter (where e.status = {waiting}) as waiting,
    count(*) filter (where e.status = {held}) as held,
    (extract(epoch from clock_timestamp() - min(e.available_at)
        filter (where e.status in ({new}, {waiting}) and e.available_at <= clock_timestamp()))
        * 1000000)::bigint as oldest_lag
from {p}outbox_shard s
left join (",
    not_done!("shard, status, available_at"),
    "
) e on e.shard = s.shard
group by s.shard, s.owner, s.epoch
order by s.shard"
);

pub(in super::super) const TYPE_STATS: &str = concat!(
    "
select
    event_type,
    count(*) filter (where status = {new}) as new,
    count(*) filter (where status = {waiting}) as waiting,
    count(*) filter (where status = {held}) as held,
    count(*) filter (where status = {dead}) as dead
from (",
    not_done!("event_type, status"),
    "
) e
group by event_type
order by count(*) desc, event_type
limit $1"
);
