//! Statements that read events and settle them.
//!
//! `before` is 1 where an older row of the key waits for its time or for an operator, and 2 where an
//! older new row is not read. Both are asked in the same snapshot.

use super::{audit, blocked, event_columns, heads, mark, pending_columns, under_token};

/// The fence is a lock, not a look: `for share` holds the shard's row until the end, so a
/// takeover waits for this statement, and this statement sees a takeover that came first. It must
/// not wait for an event's row longer than a takeover can wait for it.
macro_rules! fence {
    ($shards:literal, $epochs:literal) => {
        concat!(
            "
with patience as materialized (
    select set_config('lock_timeout', '3s', true) as set
), fence as materialized (
    select s.shard
    from patience
    cross join unnest(",
            $shards,
            "::smallint[], ",
            $epochs,
            "::bigint[]) as f (shard, epoch)
    join {p}outbox_shard s on s.shard = f.shard
    where s.owner = $1 and s.epoch = f.epoch and patience.set is not null
    order by s.shard
    for share of s
)"
        )
    };
}

/// Which rows were settled is said only where it is not all of them.
macro_rules! both_facts {
    () => {
        "
select
    array(select shard from fence) as locked,
    case when (select count(*) from settled) < cardinality($3)
        then array(select seq from settled) end as settled"
    };
}

pub(in super::super) const SETTLE_DELETE: &str = concat!(
    fence!("$5", "$6"),
    ", settled as (
    delete from {p}outbox_event e
    where ",
    under_token!("$2", "$3", "$4", " where v.shard = any(array(select shard from fence))"),
    "
    returning e.seq
)",
    both_facts!()
);

pub(in super::super) const SETTLE_MARK: &str = concat!(
    fence!("$11", "$12"),
    ", settled as (",
    mark!(),
    under_token!("$2", "$3", "$4", " where v.shard = any(array(select shard from fence))"),
    audit!(),
    both_facts!()
);

/// Payload and headers of a row that may start, as far as they have no more bytes than said; of one
/// that may not, their sizes alone.
macro_rules! content_if_first {
    () => {
        event_columns!(about "(case e.before when 0 then $4 else -1 end)",
            "(case e.before when 0 then $5 else -1 end)")
    };
}

pub(in super::super) const NOTIFY: &str = "select pg_notify($1, '')";

/// New rows alone; those whose time has not come are for the relay to postpone.
///
/// Whether anything of the shard blocks a key is asked once, when its first row with a key has come:
/// the select depends on no row, so that the server keeps its answer. Most often the answer is no,
/// and no row is asked. What is below the floor is a value that is compared, too.
///
/// A limit that the planner cannot see keeps it from sorting all that a shard has instead of walking
/// the index; and the rows of a shard come in the order of that index, so that nothing is left to
/// sort.
pub(in super::super) const READ: &str = concat!(
    "select ",
    pending_columns!("e.locked_until"),
    "e.before, ",
    content_if_first!(),
    "
from unnest($1::smallint[], $2::bigint[]) as want (shard, floor)
cross join lateral (
    select e.*, case
        when e.ordering_key is null then 0
        when exists (
                select 1 from {p}outbox_event o
                where o.shard = want.shard and o.ordering_key is not null and o.status in ({waiting}, {held})
            ) and ",
    blocked!(),
    " then 1
        when want.floor > 0 and want.floor >= (
                select o.seq from {p}outbox_event o
                where o.shard = e.shard and o.ordering_key = e.ordering_key and o.status + 0 = {new}
                order by o.seq
                limit 1
            ) then 2
        else 0 end as before
    from {p}outbox_event e
    where e.shard = want.shard and e.seq > want.floor and e.status = {new}
    order by e.seq
    limit (select $3::bigint)
) e"
);

/// The oldest row of the key that blocks it is asked for once, as it depends on no row.
pub(in super::super) const READ_KEYS: &str = concat!(
    "select ",
    pending_columns!("e.locked_until"),
    "e.before, ",
    content_if_first!(),
    "
from unnest($1::smallint[], $2::text[]) as want (shard, key)
cross join lateral (
    select e.*, case when e.seq > (
            select o.seq from {p}outbox_event o
            where o.shard = want.shard and o.ordering_key = want.key collate \"C\"
              and o.status in ({waiting}, {held})
            order by o.seq
            limit 1
        ) then 1 else 0 end as before
    from {p}outbox_event e
    where e.shard = want.shard and e.ordering_key = want.key collate \"C\" and e.status + 0 = {new}
    order by e.seq
    limit (select $3::bigint)
) e"
);

/// The newest new row of a shard.
pub(in super::super) const NEWEST: &str = "
select coalesce((
    select e.seq from {p}outbox_event e
    where e.shard = $1 and e.status = {new}
    order by e.seq desc
    limit 1
), 0)";

/// Heads of keys, blocked ones too.
pub(in super::super) const READ_HEADS: &str = concat!(
    heads!("$1", "$2 collate \"C\""),
    "
select ",
    pending_columns!("e.locked_until"),
    "e.before, ",
    content_if_first!(),
    "
from (select seq from head limit (select $3::bigint)) head
cross join lateral (
    select e.*, case when ",
    blocked!(),
    " then 1 else 0 end as before
    from {p}outbox_event e
    where e.shard = $1 and e.seq = head.seq and e.status = {new}
    offset 0
) e"
);

/// Rows without a key stand together in the index by key, in order of `seq`.
pub(in super::super) const READ_KEYLESS: &str = concat!(
    "select ",
    pending_columns!("e.locked_until"),
    "0 as before, ",
    event_columns!(about "$4", "$5"),
    "
from {p}outbox_event e
where e.shard = $1 and e.ordering_key is null and e.status + 0 = {new}
  and e.seq > $2 and e.seq <= $6
order by e.ordering_key, e.seq
limit (select $3::bigint)"
);

/// Rows that a read left without content.
pub(in super::super) const READ_CONTENT: &str = concat!(
    "select e.seq, ",
    event_columns!(exact "$3", "$4"),
    "
from unnest($1::smallint[], $2::bigint[]) as want (shard, seq)
cross join lateral (
    select *
    from {p}outbox_event e
    where e.shard = want.shard and e.seq = want.seq and e.status = {new}
    offset 0
) e"
);

/// One look at the index for each shard, however much waits.
pub(in super::super) const NEXT_DUE: &str = "
select min(e.available_at), (select clock_timestamp()) as now
from unnest($1::smallint[]) as want (shard)
cross join lateral (
    select e.available_at
    from {p}outbox_event e
    where e.shard = want.shard and e.status = {waiting}
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
        where e.shard = want.shard and e.status = {waiting} and e.available_at <= (select clock_timestamp())
        order by e.available_at, e.seq
        limit (select $2::bigint)
    ) e
    order by e.available_at, e.seq
    limit (select $2::bigint)
), free as materialized (
    select e.ctid as place
    from {p}outbox_event e
    where e.ctid = any(array(select place from due)) and e.status not in ({new}, {done}, {dead}, {held})
    for update skip locked
), promoted as (
    update {p}outbox_event e
    set status = {new}
    where e.ctid = any(array(select place from free)) and e.status not in ({new}, {done}, {dead}, {held})
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
set status = {waiting}, locked_by = null, locked_until = null,
    lock_token = e.lock_token % 2147483647 + 1
where e.available_at > (select clock_timestamp()) and ",
    under_token!(unlocked "$1", "$2", "$3")
);

/// Rows that another transaction has locked: those that are there and were skipped.
pub(in super::super) const LOCKED: &str = "
with free as materialized (
    select e.seq
    from unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
    cross join lateral (
        select e.seq
        from {p}outbox_event e
        where e.shard = v.shard and e.seq = v.seq and e.status = {new}
        for update skip locked
    ) e
)
select v.seq
from unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
where v.seq not in (select seq from free)
  and exists (
    select 1 from {p}outbox_event e
    where e.shard = v.shard and e.seq = v.seq and e.status = {new}
)";
