//! Statements of row claims.

use super::{end, fits, is_open, mark, open_rows, put_off, row_columns};

/// Rows that are due and in nobody's hands.
macro_rules! free {
    () => {
        "e.available_at <= {now} and (e.locked_until is null or e.locked_until < {now})"
    };
}

/// Rows that can be had; `status in (0, 2, 4)` stands there because the indexes have it, word for
/// word, and are not taken without it.
macro_rules! due {
    () => {
        concat!("e.status in (0, 2, 4) and e.status <> 4 and ", free!())
    };
}

/// Rows that are larger than any event, or all others, as the last parameter says.
macro_rules! of_size {
    ($payload:literal, $headers:literal, $is_large:literal) => {
        concat!(" and (", fits!($payload, $headers), ") <> ", $is_large)
    };
}

/// One shard's due rows.
pub(in super::super) const LOOK: &str = concat!(
    "
select e.seq, e.locked_until is not null or e.crashes > 0
from {p}outbox_event e
where e.shard = +?1 and ",
    due!(),
    of_size!("?3", "?4", "?5"),
    "
order by e.seq
limit +?2"
);

/// From the head of one key to the head of the next, each by one look at the index, so that a long
/// queue behind a head costs nothing; then the rows without a key. The cross join lets one head be
/// looked at before the next one is asked for, so that nobody asks when there are enough; within an
/// update, SQLite would gather all heads first.
pub(in super::super) const LOOK_HEADS: &str = concat!(
    "
with recursive head (ordering_key) as (
    select min(o.ordering_key)
    from {p}outbox_event o
    where o.shard = +?1 and o.ordering_key > ?3 and o.status in (0, 2, 4)
    union all
    select (
        select min(o.ordering_key)
        from {p}outbox_event o
        where o.shard = +?1 and o.ordering_key > head.ordering_key and o.status in (0, 2, 4))
    from head
    where head.ordering_key is not null
)
select e.seq, e.locked_until is not null or e.crashes > 0
from head
cross join {p}outbox_event e on e.seq = (
    select o.seq
    from {p}outbox_event o
    where o.shard = +?1 and o.ordering_key = head.ordering_key and o.status in (0, 2, 4)
    order by o.seq
    limit 1)
where e.status in (0, 2) and ",
    free!(),
    of_size!("?4", "?5", "?6"),
    "
union all
select e.seq, e.locked_until is not null or e.crashes > 0
from {p}outbox_event e
where e.shard = +?1 and e.ordering_key is null and ",
    due!(),
    of_size!("?4", "?5", "?6"),
    "
limit +?2"
);

/// Rows that a relay could deliver now. A key whose head waits or is held blocks its later rows.
pub(in super::super) const COUNT_DUE: &str = concat!(
    "
select count(*)
from (
    select 1
    from {p}outbox_event e
    where e.shard = +?1 and ",
    due!(),
    "
      and coalesce((
        select h.status <> 4 and h.available_at <= {now}
        from {p}outbox_event h
        where h.shard = +?1 and h.ordering_key = e.ordering_key and h.status in (0, 2, 4)
        order by h.seq
        limit 1), true)
    limit +?2
)"
);

/// Leases what was found, as far as it can still be had.
pub(in super::super) const CLAIM: &str = concat!(
    "
update {p}outbox_event as e
set locked_by = ?2, locked_until = {now} + ?3, lock_token = lock_token % 2147483647 + 1
where e.seq in (select value from json_each(?1)) and e.status in (0, 2) and ",
    free!(),
    "
returning ",
    row_columns!("false", "?4", "?5")
);

/// Owner and token of the row are the whole fence: every claim moves the token.
macro_rules! is_ours {
    () => {
        " and locked_by = ?4"
    };
}

macro_rules! leased_rows {
    () => {
        concat!(open_rows!(), is_ours!())
    };
}

pub(in super::super) const RENEW_ROWS: &str = concat!(
    "update {p}outbox_event set locked_until = {now} + ?5",
    leased_rows!(),
    "
returning seq"
);

pub(in super::super) const RELEASE_ROWS: &str = concat!(
    "
update {p}outbox_event
set locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1",
    leased_rows!()
);

/// What is taken by a write, and by its token: the verdict of the one whose lease ran out comes too
/// late from then on.
pub(in super::super) const RECLAIM: &str = concat!(
    "
update {p}outbox_event
set locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1",
    open_rows!(),
    " and locked_until <= {now}"
);

/// Another program may have written any number: the count starts at zero and stays in its range.
pub(in super::super) const SUSPECT: &str = concat!(
    "update {p}outbox_event set crashes = min(max(crashes, 0), 2147483646) + 1",
    open_rows!(),
    " and min(crashes, 2147483647) < ?4
returning seq, crashes"
);

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete from {p}outbox_event", leased_rows!());

pub(in super::super) const SETTLE_ROWS_END: &str = concat!(end!(), is_ours!());

pub(in super::super) const SETTLE_ROWS_PUT_OFF: &str = concat!(put_off!(), is_ours!());

/// Which rows a settle would find, for one that did not find them all.
pub(in super::super) const SETTLE_ROWS_FINDS: &str =
    concat!("select seq from {p}outbox_event", leased_rows!());
