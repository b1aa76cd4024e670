//! Statements of leases on rows.

use super::{
    event_columns, is_blocked, mark, oldest_of_key, open_rows, pending_columns, rows, rows_to_lock,
    verdicts,
};

/// New rows in nobody's hands. One whose time has not come is among them: its claimer postpones it.
macro_rules! free {
    () => {
        "e.status = {new} and (e.locked_until is null or e.locked_until < utc_timestamp(6))"
    };
}

/// Finds candidates without a lock; `{shards}` stands for one mark per shard.
pub(in super::super) const FIND_CLAIMABLE: &str = concat!(
    "
select e.seq, e.shard
from {p}outbox_event e force index ({p}outbox_event_ready)
where e.pending_shard in ({shards}) and e.moment = timestamp '1970-01-01 00:00:00' and ",
    free!(),
    "
order by e.pending_shard, e.seq
limit ?"
);

/// The same among rows without a key. They come in the order of the index; asked for it, MariaDB
/// would sort all that there are.
pub(in super::super) const FIND_KEYLESS: &str = concat!(
    "
select e.seq, e.shard
from {p}outbox_event e force index ({p}outbox_event_key)
where e.shard in ({shards}) and e.pending_key is null and ",
    free!(),
    "
limit ?"
);

/// The heads of the keys after one, among so many rows, whether they can be had or not. What is
/// behind the last one of these is passed by with the next look, as in [`super::HEADS`].
pub(in super::super) const FIND_HEADS: &str = concat!(
    "
select h.seq, h.shard, h.head_of, h.passed, ",
    free!(),
    " and not (",
    is_blocked!(),
    ") as is_free
from (
    select min(k.seq) as seq, k.shard, k.pending_key as head_of, count(*) as passed
    from (
        select k.seq, k.shard, k.pending_key
        from {p}outbox_event k force index ({p}outbox_event_key)
        where k.status = {new} and k.shard in ({shards}) and k.pending_key > ?
        order by k.shard, k.pending_key, k.seq
        limit ?
    ) k
    group by k.shard, k.pending_key
) h
straight_join {p}outbox_event e force index (primary) on e.seq = h.seq"
);

/// Rows that a relay could deliver now, among so many new ones; `{shards}` stands for one mark per
/// shard.
pub(in super::super) const COUNT_DUE: &str = concat!(
    "
select count(*)
from (
    select k.seq from {p}outbox_event k force index ({p}outbox_event_ready)
    where k.status = {new} and k.pending_shard in ({shards})
      and k.moment = timestamp '1970-01-01 00:00:00'
    limit ?
) n
straight_join {p}outbox_event e force index (primary) on e.seq = n.seq
where ",
    free!(),
    " and e.available_at <= utc_timestamp(6)
    and not (",
    is_blocked!(),
    ")"
);

/// Rows that it could make new and deliver then, among so many whose time has come.
pub(in super::super) const COUNT_DUE_WAITING: &str = concat!(
    "
select count(*)
from (
    select k.seq from {p}outbox_event k force index ({p}outbox_event_ready)
    where k.status = {waiting} and k.pending_shard in ({shards}) and k.moment <= utc_timestamp(6)
    limit ?
) n
straight_join {p}outbox_event e force index (primary) on e.seq = n.seq
where not (",
    is_blocked!(),
    ")"
);

/// Locks candidates one by one until there are enough; `skip locked` lets claims pass each other.
pub(in super::super) const CLAIM_PICK: &str = concat!(
    "select ",
    pending_columns!("(e.locked_until is not null or e.crashes > 0)"),
    "false as is_blocked, ",
    event_columns!(),
    "
from (select j.seq from json_table(?, '$[*]' columns (seq bigint path '$')) j) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
where ",
    free!(),
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
pub(in super::super) const RECORD_STARTS: &str = concat!(
    "update ",
    rows!(),
    open_rows!(),
    "    and e.crashes < ?\nset e.crashes = least(greatest(e.crashes, 0), 2147483646) + 1"
);

pub(in super::super) const FIND_STARTS: &str = concat!(
    "select e.seq, e.crashes from ",
    rows_to_lock!(),
    open_rows!(),
    "    and e.crashes < ?\nfor update"
);

pub(in super::super) const SETTLE_ROWS_FIND: &str =
    concat!("select e.seq from ", rows_to_lock!(), leased_rows!(), "for update");

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete e from ", rows!(), leased_rows!());

pub(in super::super) const SETTLE_ROWS_MARK: &str =
    concat!("update ", verdicts!(), leased_rows!(), mark!());
