//! Statements that read events and settle them.

use super::{
    event_columns, is_blocked, mark, oldest_of_key, open_rows, pending_columns, rows, rows_to_lock,
    verdicts,
};

/// `{ranges}` stands for one RANGE per shard: one look at one table, however many shards there are.
/// What comes before a row is asked in the same snapshot; which new row of its key is the oldest,
/// above a floor only. The order is the index's: with what is the same for all rows in it, MariaDB
/// sorts.
pub(in super::super) const READ: &str = concat!(
    "select ",
    pending_columns!(),
    is_blocked!(),
    " as is_blocked,
    case when ? then ",
    oldest_of_key!("{new}"),
    " end as head, ",
    event_columns!(),
    "
from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = {new} and e.moment = timestamp '1970-01-01 00:00:00' and ({ranges})
order by e.pending_shard, e.seq
limit ?"
);

pub(in super::super) const RANGE: &str = "(e.pending_shard = ? and e.seq > ? and e.seq <= ?)";

/// Where a shard's page ends, if it has that many rows; several stand in one statement, joined by
/// UNION ALL.
pub(in super::super) const READ_END: &str = "
(select e.pending_shard, e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = {new} and e.pending_shard = ? and e.moment = timestamp '1970-01-01 00:00:00'
  and e.seq > ?
order by e.seq
limit 1 offset ?)";

/// The new rows of a key; several stand in one statement, joined by UNION ALL.
pub(in super::super) const READ_KEYS: &str = concat!(
    "
(select ",
    pending_columns!(),
    is_blocked!(),
    " as is_blocked, ",
    event_columns!(),
    "
from {p}outbox_event e force index ({p}outbox_event_key)
where e.status = {new} and e.shard = ? and e.pending_key = ?
order by e.seq
limit ?)"
);

/// The newest new row of a shard.
pub(in super::super) const NEWEST: &str = "
select e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = {new} and e.pending_shard = ? and e.moment = timestamp '1970-01-01 00:00:00'
order by e.seq desc
limit 1";

/// The oldest new row of each key behind a key, among so many rows. What is behind the last one of
/// these is passed by with the next look: a GROUP BY without a limit would be free to walk over all
/// rows of a key, and does where most keys have few.
pub(in super::super) const READ_HEADS_FIND: &str = "
select min(k.seq), k.pending_key, count(*)
from (
    select k.seq, k.pending_key
    from {p}outbox_event k force index ({p}outbox_event_key)
    where k.status = {new} and k.shard = ? and k.pending_key > ?
    order by k.pending_key, k.seq
    limit ?
) k
group by k.pending_key
order by k.pending_key";

/// New rows without a key.
pub(in super::super) const READ_KEYLESS_FIND: &str = "
select k.seq from {p}outbox_event k force index ({p}outbox_event_key)
where k.status = {new} and k.shard = ? and k.pending_key is null and k.seq > ? and k.seq <= ?
order by k.seq
limit ?";

/// Rows that were found in the same snapshot.
pub(in super::super) const READ_HEADS: &str = concat!(
    "select ",
    pending_columns!(),
    is_blocked!(),
    " as is_blocked, ",
    event_columns!(),
    "
from json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq"
);

/// Rows that a read left without content.
pub(in super::super) const READ_CONTENT: &str = concat!(
    "select e.seq, ",
    event_columns!(),
    "
from json_table(?, '$[*]' columns (shard smallint path '$[0]', seq bigint path '$[1]')) v
straight_join {p}outbox_event e force index (primary)
    on e.seq = v.seq and e.shard = v.shard and e.status = {new}"
);

/// The fence is a lock, not a look: a takeover waits for the end of this transaction, and this
/// statement sees a takeover that came first.
///
/// The list is a derived table wherever rows are locked, since MySQL says of `json_table` beside
/// `for update` that it stands in two locking clauses; and the index is forced, since a scan of a
/// small table would lock every shard of it.
pub(in super::super) const FENCE: &str = "
select s.shard
from (
    select j.shard, j.epoch
    from json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) j
) f
straight_join {p}outbox_shard s force index (primary) on s.shard = f.shard
where s.owner = ? and s.epoch = f.epoch
for update";

/// Which verdicts apply, where not all of them do: nothing says which rows an UPDATE changed.
pub(in super::super) const SETTLE_FIND: &str =
    concat!("select e.seq from ", rows_to_lock!(), open_rows!(), "for update");

pub(in super::super) const SETTLE_DELETE: &str = concat!("delete e from ", rows!(), open_rows!());

pub(in super::super) const SETTLE_MARK: &str =
    concat!("update ", verdicts!(), open_rows!(), mark!());

/// What failed leaves a line in the audit, told by the row as its verdict has left it.
pub(in super::super) const AUDIT_FAILURES: &str = concat!(
    "
insert into {p}outbox_audit (event_id, action, attempts, error)
select
    e.event_id,
    case e.status when {waiting} then 'outbox-send-failed' else 'outbox-failed-permanent' end,
    e.attempts, e.last_error
from ",
    rows!(),
    "
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq"
);

/// When the next waiting row of each of these shards is due: one look for each, which a GROUP BY
/// would be free to make a walk.
pub(in super::super) const NEXT_DUE: &str = "
select n.shard, coalesce(timestampdiff(microsecond, utc_timestamp(6), n.moment), 0) as due_in
from (
    select v.shard, (
        select e.moment from {p}outbox_event e force index ({p}outbox_event_ready)
        where e.status = {waiting} and e.pending_shard = v.shard
        order by e.status, e.pending_shard, e.moment, e.seq
        limit 1) as moment
    from json_table(?, '$[*]' columns (shard smallint path '$')) v
) n
where n.moment is not null";

/// Finds waiting rows of a shard whose time has come, without a lock; several stand in one
/// statement, joined by UNION ALL.
pub(in super::super) const FIND_DUE: &str = "
(select e.moment, e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = {waiting} and e.pending_shard = ? and e.moment <= utc_timestamp(6)
order by e.moment, e.seq
limit ?)";

/// Locks them, apart from those that somebody else has locked.
pub(in super::super) const PROMOTE_PICK: &str = "
select e.seq, e.shard, e.ordering_key
from (select j.seq from json_table(?, '$[*]' columns (seq bigint path '$')) j) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
where e.status = {waiting} and e.available_at <= utc_timestamp(6)
for update skip locked";

/// Nothing is decided, and the token stays.
pub(in super::super) const PROMOTE: &str = "
update json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
set e.status = {new}";

pub(in super::super) const POSTPONE: &str = concat!(
    "update ",
    rows!(),
    "
straight_join {p}outbox_event e force index (primary)
    on e.seq = v.seq and e.shard = v.shard and e.lock_token = v.token and e.status = {new}
    and e.available_at > utc_timestamp(6)
set e.status = {waiting}, e.locked_by = null, e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
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
