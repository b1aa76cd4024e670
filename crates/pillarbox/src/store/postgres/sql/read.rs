//! Statements that read new rows.
//!
//! `before` is 1 where an older row of the key waits for its time or for an operator, and 2 where an
//! older new row is not read. Both are asked in the same snapshot.

use super::{blocked, event_columns, heads, pending_columns};

/// Payload and headers of a row that may start, as far as they have no more bytes than said; of one
/// that may not, their sizes alone.
macro_rules! content_if_first {
    () => {
        event_columns!(about "(case e.before when 0 then $4 else -1 end)",
            "(case e.before when 0 then $5 else -1 end)")
    };
}

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
                where o.shard = want.shard and o.ordering_key is not null and o.status in (2, 4)
            ) and ",
    blocked!(),
    " then 1
        when want.floor > 0 and want.floor >= (
                select o.seq from {p}outbox_event o
                where o.shard = e.shard and o.ordering_key = e.ordering_key and o.status + 0 = 0
                order by o.seq
                limit 1
            ) then 2
        else 0 end as before
    from {p}outbox_event e
    where e.shard = want.shard and e.seq > want.floor and e.status = 0
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
              and o.status in (2, 4)
            order by o.seq
            limit 1
        ) then 1 else 0 end as before
    from {p}outbox_event e
    where e.shard = want.shard and e.ordering_key = want.key collate \"C\" and e.status + 0 = 0
    order by e.seq
    limit (select $3::bigint)
) e"
);

/// The newest new row of a shard.
pub(in super::super) const NEWEST: &str = "
select coalesce((
    select e.seq from {p}outbox_event e
    where e.shard = $1 and e.status = 0
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
    where e.shard = $1 and e.seq = head.seq and e.status = 0
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
where e.shard = $1 and e.ordering_key is null and e.status + 0 = 0
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
    where e.shard = want.shard and e.seq = want.seq and e.status = 0
    offset 0
) e"
);
