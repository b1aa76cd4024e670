//! Statements that count events.

use super::alive;

/// For how long the oldest due row has been so: of new rows the front is looked at, for their index
/// knows no times, and old ones stand there.
macro_rules! oldest_lag {
    () => {
        "(
        select {now} - min(due_at)
        from (
            select * from (
                select available_at as due_at from {p}outbox_event
                where shard = 0 and status = {new}
                order by seq
                limit 1000)
            union all
            select min(available_at) from {p}outbox_event where shard = 0 and status = {waiting}
        )
        where due_at <= {now}
    )"
    };
}

/// Each count reads an index and nothing else. All rows are in shard 0.
pub(in super::super) const STATS: &str = concat!(
    "
select
    (select count(*) from {p}outbox_event where status = {new}) as new,
    (select count(*) from {p}outbox_event where status = {waiting}) as waiting,
    count(*) filter (where status = {held}) as held,
    ",
    oldest_lag!(),
    " as oldest_lag,
    count(*) filter (where status = {dead}) as dead,
    (select count(*) from {p}outbox_owner where ",
    alive!(),
    ") as owners,
    (select count(*) from {p}outbox_shard s
        join {p}outbox_owner o on o.owner = s.owner and ",
    alive!(),
    "
    ) as owned_shards
from {p}outbox_event
where status in ({dead}, {held})"
);

pub(in super::super) const COUNT_DONE: &str =
    "select count(*) from {p}outbox_event where status = {done}";

pub(in super::super) const SHARD_STATS: &str = concat!(
    "
select
    s.shard, s.owner, s.epoch,
    (select count(*) from {p}outbox_event where status = {new}) as new,
    (select count(*) from {p}outbox_event where status = {waiting}) as waiting,
    (select count(*) from {p}outbox_event where status in ({dead}, {held}) and status = {held}) as held,
    ",
    oldest_lag!(),
    " as oldest_lag
from {p}outbox_shard s
where s.shard = 0"
);

pub(in super::super) const TYPE_STATS: &str = "
select
    event_type,
    count(*) filter (where status = {new}) as new,
    count(*) filter (where status = {waiting}) as waiting,
    count(*) filter (where status = {held}) as held,
    count(*) filter (where status = {dead}) as dead
from (
    select event_type, status from {p}outbox_event where shard = 0 and status = {new}
    union all
    select event_type, status from {p}outbox_event where shard = 0 and status = {waiting}
    union all
    select event_type, status from {p}outbox_event where status in ({dead}, {held})
)
group by event_type
order by count(*) desc, event_type
limit +?1";
