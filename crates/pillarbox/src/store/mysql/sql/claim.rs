//! Statements of row claims.

use super::{event_columns, mark, open_rows, pending_columns, rows, rows_to_lock, verdicts};

/// Rows that can be had.
macro_rules! due {
    () => {
        "e.status in (0, 2)
  and e.available_at <= utc_timestamp(6)
  and (e.locked_until is null or e.locked_until < utc_timestamp(6))"
    };
}

/// Finds candidates without a lock; `{shards}` stands for one mark per shard.
pub(in super::super) const LOOK: &str = concat!(
    "
select e.seq, e.shard
from {p}outbox_event e force index ({p}outbox_event_pending)
where e.pending_shard in ({shards}) and ",
    due!(),
    "
order by e.pending_shard, e.seq
limit ?"
);

/// The same among rows without a key. They come in the order of the index; asked for it, MariaDB
/// would sort all that there are.
pub(in super::super) const LOOK_KEYLESS: &str = concat!(
    "
select e.seq, e.shard
from {p}outbox_event e force index ({p}outbox_event_key)
where e.pending_shard in ({shards}) and e.pending_key is null and ",
    due!(),
    "
limit ?"
);

/// The heads of the keys after one, whether they can be had or not; what waits behind them is
/// passed by within the index.
pub(in super::super) const LOOK_HEADS: &str = concat!(
    "
select h.seq, h.shard, h.head_of, ",
    due!(),
    " as is_due
from (
    select min(k.seq) as seq, k.pending_shard as shard, k.pending_key as head_of
    from {p}outbox_event k force index ({p}outbox_event_key)
    where k.pending_shard in ({shards}) and k.pending_key > ?
    group by k.pending_shard, k.pending_key
    order by k.pending_shard, k.pending_key
    limit ?
) h
straight_join {p}outbox_event e force index (primary) on e.seq = h.seq"
);

/// Rows that are there.
pub(in super::super) const PRESENT: &str = concat!(
    "select e.seq from ",
    rows!(),
    "
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq and e.shard = v.shard"
);

/// Rows that are there, and that no other transaction has locked.
pub(in super::super) const UNLOCKED: &str = concat!(
    "select e.seq from ",
    rows_to_lock!(),
    "
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq and e.shard = v.shard
for update skip locked"
);

/// Rows that a relay could deliver now; `{shards}` stands for one mark per shard. A key whose head
/// waits or is held blocks its later rows.
pub(in super::super) const COUNT_DUE: &str = concat!(
    "
select count(*)
from (
    select 1
    from {p}outbox_event e force index ({p}outbox_event_pending)
    where e.pending_shard in ({shards}) and ",
    due!(),
    "
      and coalesce((
        select h.status <> 4 and h.available_at <= utc_timestamp(6)
        from {p}outbox_event h force index ({p}outbox_event_key)
        where h.pending_shard = e.pending_shard and h.pending_key = e.pending_key
        order by h.pending_shard, h.pending_key, h.seq
        limit 1), true)
    limit ?
) due"
);

/// Locks candidates one by one until there are enough; `skip locked` lets claims pass each other.
pub(in super::super) const CLAIM_PICK: &str = concat!(
    "select ",
    pending_columns!("(e.locked_until is not null or e.crashes > 0)"),
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

/// What is taken by a write, and by its token: the verdict of the one whose lease ran out comes too
/// late from then on.
pub(in super::super) const RECLAIM: &str = concat!(
    "update ",
    rows!(),
    open_rows!(),
    "    and e.locked_until <= utc_timestamp(6)
set e.locked_by = null, e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
);

/// Another program may have written any number: the count starts at zero and stays in its range.
pub(in super::super) const SUSPECT: &str = concat!(
    "update ",
    rows!(),
    open_rows!(),
    "    and e.crashes < ?\nset e.crashes = least(greatest(e.crashes, 0), 2147483646) + 1"
);

pub(in super::super) const SUSPECTED: &str = concat!(
    "select e.seq, e.crashes from ",
    rows_to_lock!(),
    open_rows!(),
    "    and e.crashes < ?\nfor update"
);

pub(in super::super) const SETTLE_ROWS_PICK: &str =
    concat!("select e.seq from ", rows_to_lock!(), leased_rows!(), "for update");

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete e from ", rows!(), leased_rows!());

pub(in super::super) const SETTLE_ROWS_MARK: &str =
    concat!("update ", verdicts!(), leased_rows!(), mark!());
