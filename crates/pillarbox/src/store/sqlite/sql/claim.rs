//! Statements of row claims.

use crate::envelope::{MAX_HEADERS_SIZE, MAX_PAYLOAD};

use super::{end, fits, heads, is_blocked, is_open, mark, open_rows, put_off, row_columns};

/// New rows in nobody's hands. One whose time has not come is among them: its claimer postpones it.
macro_rules! free {
    () => {
        "e.status = 0 and (e.locked_until is null or e.locked_until < {now})"
    };
}

/// Whether a row is no larger than an event may be.
macro_rules! is_of_legal_size {
    () => {
        fits!("1048576", "65536")
    };
}

const _: () = assert!(MAX_PAYLOAD == 1_048_576 && MAX_HEADERS_SIZE == 65_536);

/// Rows that are larger than any event, due and not among those to skip; or all others.
macro_rules! of_size {
    ($is_large:literal, $skip:literal) => {
        concat!(
            " and iif(",
            $is_large,
            ", not (",
            is_of_legal_size!(),
            ")
        and e.available_at <= {now}
        and e.seq not in (select value from json_each(",
            $skip,
            ")), ",
            is_of_legal_size!(),
            ")"
        )
    };
}

/// One shard's new rows.
pub(in super::super) const LOOK: &str = concat!(
    "
select e.seq, e.locked_until is not null or e.crashes > 0
from {p}outbox_event e
where e.shard = +?1 and ",
    free!(),
    of_size!("?3", "?4"),
    "
order by e.seq
limit +?2"
);

/// Heads of keys that nothing blocks; then the rows without a key. Within an update, SQLite would
/// gather all heads first. The plus keeps it from looking for a head among all new rows.
pub(in super::super) const LOOK_HEADS: &str = concat!(
    "
with recursive ",
    heads!("?3"),
    "
select e.seq, e.locked_until is not null or e.crashes > 0
from head
cross join {p}outbox_event e on e.seq = head.seq
where +",
    free!(),
    " and not ",
    is_blocked!(),
    of_size!("?4", "?5"),
    "
union all
select e.seq, e.locked_until is not null or e.crashes > 0
from {p}outbox_event e
where e.shard = +?1 and e.ordering_key is null and ",
    free!(),
    of_size!("?4", "?5"),
    "
limit +?2"
);

/// Rows that a relay could deliver now, among so many new ones, and rows that it could make new.
pub(in super::super) const COUNT_DUE: &str = concat!(
    "
select
    (
        select count(*)
        from (
            select (e.locked_until is null or e.locked_until < {now})
                and e.available_at <= {now} and not ",
    is_blocked!(),
    " as is_due
            from {p}outbox_event e
            where e.shard = +?1 and e.status = 0
            order by e.seq
            limit +?2
        )
        where is_due
    ) + (
        select count(*)
        from (
            select 1
            from {p}outbox_event
            where shard = +?1 and status = 2 and available_at <= {now}
            limit +?2
        )
    )"
);

/// Whether somebody else has the shard.
pub(in super::super) const IS_ANOTHERS: &str =
    "select exists (select 1 from {p}outbox_shard where shard = ?1 and owner <> ?2)";

/// Leases what was found, as far as it can still be had. What is returned does not count the lease
/// that this gives.
pub(in super::super) const CLAIM: &str = concat!(
    "
update {p}outbox_event as e
set locked_by = ?2, locked_until = {now} + ?3, lock_token = lock_token % 2147483647 + 1
where e.seq in (select value from json_each(?1)) and +",
    free!(),
    "
returning ",
    row_columns!("0", "null", "?4", "?5")
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

/// Of a row that is larger than any event, which no claim leases, the token alone is the fence
/// while nobody has leased it.
macro_rules! is_ours_or_large {
    () => {
        concat!(
            " and (locked_by = ?4 or (locked_until is null or locked_until < {now}) and not (",
            is_of_legal_size!(),
            "))"
        )
    };
}

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete from {p}outbox_event", open_rows!(), is_ours_or_large!());

pub(in super::super) const SETTLE_ROWS_END: &str = concat!(end!(), is_ours_or_large!());

pub(in super::super) const SETTLE_ROWS_PUT_OFF: &str = concat!(put_off!(), is_ours_or_large!());

/// Which rows a settle would find, for one that did not find them all.
pub(in super::super) const SETTLE_ROWS_FINDS: &str =
    concat!("select seq from {p}outbox_event", open_rows!(), is_ours_or_large!());
