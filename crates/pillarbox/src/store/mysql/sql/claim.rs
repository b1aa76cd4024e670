//! Statements of row claims.

use super::{event_columns, mark, open_rows, pending_columns, rows, rows_to_lock, verdicts};

/// Rows that can be had. A key's head is asked for row by row, and by a scalar: the plan cannot
/// turn that into a join over all that waits.
macro_rules! due {
    () => {
        "e.status in (0, 2)
  and e.available_at <= utc_timestamp(6)
  and (e.locked_until is null or e.locked_until < utc_timestamp(6))
  and (? or e.ordering_key is null or e.seq = (
        select o.seq from {p}outbox_event o force index ({p}outbox_event_key)
        where o.pending_key = e.ordering_key
        order by o.pending_key, o.seq
        limit 1))"
    };
}

/// Finds candidates without a lock; `{shards}` stands for one mark per shard.
pub(in super::super) const CLAIM_LOOK: &str = concat!(
    "
select e.seq, e.shard
from {p}outbox_event e force index ({p}outbox_event_pending)
where e.pending_shard in ({shards}) and ",
    due!(),
    "
order by e.pending_shard, e.seq
limit ?"
);

/// Locks candidates one by one until there are enough; `skip locked` lets claims pass each other.
pub(in super::super) const CLAIM_PICK: &str = concat!(
    "select ",
    pending_columns!(),
    "null as head, ",
    event_columns!(),
    "
from (select j.seq from json_table(?, '$[*]' columns (seq bigint path '$')) j) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
where ",
    due!(),
    "
limit ?
for update skip locked"
);

pub(in super::super) const CLAIM: &str = "
update json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
set e.locked_by = ?,
    e.locked_until = utc_timestamp(6) + interval ? microsecond,
    e.lock_token = e.lock_token % 2147483647 + 1";

/// Owner and token of the row are the whole fence: every claim moves the token.
macro_rules! leased_rows {
    () => {
        concat!(
            open_rows!(),
            "    and e.locked_by = ?
"
        )
    };
}

pub(in super::super) const RENEW_ROWS: &str = concat!(
    "update ",
    rows!(),
    leased_rows!(),
    "set e.locked_until = utc_timestamp(6) + interval ? microsecond"
);

/// Which leases still stand, where not all of them do.
pub(in super::super) const KEPT_ROWS: &str =
    concat!("select distinct e.seq from ", rows!(), leased_rows!());

pub(in super::super) const RELEASE_ROWS: &str = concat!(
    "update ",
    rows!(),
    leased_rows!(),
    "set e.locked_by = null, e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
);

pub(in super::super) const SETTLE_ROWS_PICK: &str =
    concat!("select e.seq from ", rows_to_lock!(), leased_rows!(), "for update");

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete e from ", rows!(), leased_rows!());

pub(in super::super) const SETTLE_ROWS_MARK: &str =
    concat!("update ", verdicts!(), leased_rows!(), mark!());
