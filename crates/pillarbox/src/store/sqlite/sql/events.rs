//! Statements that read events and settle them.

use super::{end, fits, heads, is_blocked, is_open, mark, open_rows, put_off, row_columns};

/// One look for rows that block the key; one for new rows of it at or below the floor, where there is
/// one. Both see the snapshot of the page.
pub(in super::super) const READ: &str = concat!(
    "select ",
    row_columns!(
        concat!(
            "case
        when ordering_key is null then 0
        when ",
            is_blocked!(),
            " then 1
        when ?2 > 0 and exists (
            select 1 from {p}outbox_event o
            where o.shard = e.shard and o.ordering_key = e.ordering_key and o.seq <= +?2
              and o.status = {new}) then 2
        else 0 end"
        ),
        "locked_until",
        "?4",
        "?5"
    ),
    "
from {p}outbox_event e
where shard = +?1 and seq > +?2 and status = {new}
order by seq
limit +?3"
);

pub(in super::super) const READ_KEYS: &str = concat!(
    "select ",
    row_columns!(is_blocked!(), "locked_until", "?4", "?5"),
    "
from {p}outbox_event e
where shard = +?1 and ordering_key = +?2 and status = {new}
order by seq
limit +?3"
);

/// The newest new row of a shard.
pub(in super::super) const NEWEST: &str =
    "select coalesce(max(seq), 0) from {p}outbox_event where shard = +?1 and status = {new}";

/// Whether a row is blocked is asked once, and what is blocked comes without content: a sweep over
/// many keys that wait should cost little.
pub(in super::super) const READ_HEADS: &str = concat!(
    "
with recursive ",
    heads!("?2"),
    ",
page (place, is_blocked) as materialized (
    select e.seq, ",
    is_blocked!(),
    "
    from head
    cross join {p}outbox_event e on e.seq = head.seq
    limit +?3
)
select ",
    row_columns!("page.is_blocked", "locked_until", "iif(page.is_blocked, -1, ?4)", "?5"),
    "
from page
cross join {p}outbox_event e on e.seq = page.place"
);

/// By the index named, since the planner would go through the rows with a key, too.
pub(in super::super) const READ_KEYLESS: &str = concat!(
    "select ",
    row_columns!("0", "locked_until", "?4", "?5"),
    "
from {p}outbox_event indexed by {p}outbox_event_key
where shard = +?1 and ordering_key is null and seq > +?2 and seq <= +?6 and status = {new}
order by seq
limit +?3"
);

/// Rows that a read left without content. The plus keeps the planner from the index of new rows.
pub(in super::super) const READ_CONTENT: &str = concat!(
    "select ",
    row_columns!("0", "locked_until", "?2", "?3"),
    "
from {p}outbox_event
where seq in (select value from json_each(?1)) and +status = {new}"
);

/// In how long the next row is due that waits.
pub(in super::super) const NEXT_DUE: &str = "select min(available_at) - {now} from {p}outbox_event where shard = +?1 and status = {waiting}";

/// Nothing is decided, and the token stays.
pub(in super::super) const PROMOTE: &str = "
update {p}outbox_event
set status = {new}
where seq in (
    select seq
    from {p}outbox_event
    where shard = +?1 and status = {waiting} and available_at <= {now}
    order by available_at, seq
    limit +?2)
returning seq, ordering_key";

/// The plus keeps the planner from the index of new rows.
pub(in super::super) const POSTPONE: &str = "
update {p}outbox_event
set status = {waiting}, locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1
where seq in (select value from json_each(?1))
  and shard = ?2 and lock_token = ?3 and +status = {new} and available_at > {now}";

/// Whether a shard is held. Runs inside `begin immediate`, so that it stays so until the end.
pub(in super::super) const IS_OWNED: &str =
    "select exists (select 1 from {p}outbox_shard where shard = ?1 and owner = ?2 and epoch = ?3)";

/// There is one writer: a takeover comes before this statement and is seen, or after the commit.
macro_rules! fence {
    ($epoch:literal) => {
        concat!(
            "
  and exists (
        select 1 from {p}outbox_shard where shard = ?2 and owner = ?4 and epoch = ",
            $epoch,
            "
    )"
        )
    };
}

pub(in super::super) const SETTLE_DELETE: &str =
    concat!("delete from {p}outbox_event", open_rows!(), fence!("?5"));

pub(in super::super) const SETTLE_FINAL: &str = concat!(end!(), fence!("?9"));

pub(in super::super) const SETTLE_WAITING: &str = concat!(put_off!(), fence!("?9"));

/// Which rows a settle would find, for one that did not find them all.
pub(in super::super) const SETTLE_FIND: &str =
    concat!("select seq from {p}outbox_event", open_rows!(), fence!("?5"));

/// What failed leaves a line in the audit, told by the row as its verdict has left it.
pub(in super::super) const AUDIT_FAILURES: &str = "
insert into {p}outbox_audit (event_id, action, attempts, error)
select
    event_id,
    case status when {waiting} then 'outbox-send-failed' else 'outbox-failed-permanent' end,
    attempts, last_error
from {p}outbox_event
where seq in (select value from json_each(?1))";
