//! Statements about waiting rows: when they are due, and what makes them new or lets them wait.

use super::under_token;

/// One look at the index for each shard, however much waits.
pub(in super::super) const NEXT_DUE: &str = "
select min(e.available_at), (select clock_timestamp()) as now
from unnest($1::smallint[]) as want (shard)
cross join lateral (
    select e.available_at
    from {p}outbox_event e
    where e.shard = want.shard and e.status = 2
    order by e.available_at, e.seq
    limit 1
) e";

/// Those that have been due for longest are found first and locked then, so that no more are locked
/// than change. `found` counts those that somebody else has locked, too. The clock is asked once, in
/// a select of its own: what is compared with a clock that is asked for every row is no condition of
/// the index. The status is said, where rows are gone to by their places, in a way that keeps the
/// planner from walking a whole index instead.
pub(in super::super) const PROMOTE: &str = "
with due as materialized (
    select e.place
    from unnest($1::smallint[]) as want (shard)
    cross join lateral (
        select e.ctid as place, e.available_at, e.seq
        from {p}outbox_event e
        where e.shard = want.shard and e.status = 2 and e.available_at <= (select clock_timestamp())
        order by e.available_at, e.seq
        limit (select $2::bigint)
    ) e
    order by e.available_at, e.seq
    limit (select $2::bigint)
), free as materialized (
    select e.ctid as place
    from {p}outbox_event e
    where e.ctid = any(array(select place from due)) and e.status not in (0, 1, 3, 4)
    for update skip locked
), promoted as (
    update {p}outbox_event e
    set status = 0
    where e.ctid = any(array(select place from free)) and e.status not in (0, 1, 3, 4)
    returning e.shard, e.seq, e.ordering_key
)
select
    (select count(*) from due) as found,
    array(select shard from promoted order by seq) as shards,
    array(select seq from promoted order by seq) as seqs,
    array(select ordering_key from promoted order by seq) as keys";

/// Whoever reads the row meanwhile has the old token: its verdict comes too late.
pub(in super::super) const POSTPONE: &str = concat!(
    "
update {p}outbox_event e
set status = 2, locked_by = null, locked_until = null,
    lock_token = e.lock_token % 2147483647 + 1
where e.available_at > (select clock_timestamp()) and ",
    under_token!(unlocked "$1", "$2", "$3")
);
