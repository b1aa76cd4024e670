//! Statements of rows whose time has come, or has not.

use super::rows;

/// When the next waiting row of each of these shards is due: one look for each, which a GROUP BY would
/// be free to make a walk.
pub(in super::super) const NEXT_DUE: &str = "
select n.shard, coalesce(timestampdiff(microsecond, utc_timestamp(6), n.moment), 0) as due_in
from (
    select v.shard, (
        select e.moment from {p}outbox_event e force index ({p}outbox_event_ready)
        where e.status = 2 and e.pending_shard = v.shard
        order by e.status, e.pending_shard, e.moment, e.seq
        limit 1) as moment
    from json_table(?, '$[*]' columns (shard smallint path '$')) v
) n
where n.moment is not null";

/// Finds waiting rows of a shard whose time has come, without a lock; several stand in one statement,
/// joined by UNION ALL.
pub(in super::super) const LOOK_DUE: &str = "
(select e.moment, e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = 2 and e.pending_shard = ? and e.moment <= utc_timestamp(6)
order by e.moment, e.seq
limit ?)";

/// Locks them, apart from those that somebody else has locked.
pub(in super::super) const PROMOTE_PICK: &str = "
select e.seq, e.shard, e.ordering_key
from (select j.seq from json_table(?, '$[*]' columns (seq bigint path '$')) j) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
where e.status = 2 and e.available_at <= utc_timestamp(6)
for update skip locked";

/// Nothing is decided, and the token stays.
pub(in super::super) const PROMOTE: &str = "
update json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
set e.status = 0";

pub(in super::super) const POSTPONE: &str = concat!(
    "update ",
    rows!(),
    "
straight_join {p}outbox_event e force index (primary)
    on e.seq = v.seq and e.shard = v.shard and e.lock_token = v.token and e.status = 0
    and e.available_at > utc_timestamp(6)
set e.status = 2, e.locked_by = null, e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
);
