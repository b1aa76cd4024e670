//! Statements of leases on rows.

use crate::envelope::{MAX_HEADERS_SIZE, MAX_PAYLOAD};

use super::{end, fits, heads, is_blocked, is_open, mark, open_rows, put_off, row_columns};

/// New rows in nobody's hands. One whose time has not come is among them: its claimer postpones it.
macro_rules! free {
    () => {
        "e.status = {new} and (e.locked_until is null or e.locked_until < {now})"
    };
}

/// Whether a row is no larger than an event may be.
macro_rules! fits_an_event {
    () => {
        fits!("1048576", "65536")
    };
}

const _: () = assert!(MAX_PAYLOAD == 1_048_576 && MAX_HEADERS_SIZE == 65_536);

/// Rows that are larger than any event, due, and not to be skipped; or all other rows.
macro_rules! of_size {
    ($is_oversized:literal, $skip:literal) => {
        concat!(
            " and iif(",
            $is_oversized,
            ", not (",
            fits_an_event!(),
            ")
        and e.available_at <= {now}
        and e.seq not in (select value from json_each(",
            $skip,
            ")), ",
            fits_an_event!(),
            ")"
        )
    };
}

/// One shard's new rows.
pub(in super::super) const FIND_CLAIMABLE: &str = concat!(
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
pub(in super::super) const FIND_HEADS: &str = concat!(
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
            where e.shard = +?1 and e.status = {new}
            order by e.seq
            limit +?2
        )
        where is_due
    ) + (
        select count(*)
        from (
            select 1
            from {p}outbox_event
            where shard = +?1 and status = {waiting} and available_at <= {now}
            limit +?2
        )
    )"
);

/// Whether another owner has the shard.
pub(in super::super) const IS_OWNED_BY_ANOTHER: &str =
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
pub(in super::super) const RECORD_STARTS: &str = concat!(
    "update {p}outbox_event set crashes = min(max(crashes, 0), 2147483646) + 1",
    open_rows!(),
    " and min(crashes, 2147483647) < ?4
returning seq, crashes"
);

/// The fence of a verdict. No claim leases a row that is larger than any event: while nobody has
/// leased it, its token alone is the fence.
macro_rules! is_ours_or_oversized {
    () => {
        concat!(
            " and (locked_by = ?4 or (locked_until is null or locked_until < {now}) and not (",
            fits_an_event!(),
            "))"
        )
    };
}

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete from {p}outbox_event", open_rows!(), is_ours_or_oversized!());

pub(in super::super) const SETTLE_ROWS_FINAL: &str = concat!(end!(), is_ours_or_oversized!());

pub(in super::super) const SETTLE_ROWS_WAITING: &str = concat!(put_off!(), is_ours_or_oversized!());

/// Which rows a settle would find, for one that did not find them all.
pub(in super::super) const SETTLE_ROWS_FIND: &str =
    concat!("select seq from {p}outbox_event", open_rows!(), is_ours_or_oversized!());
