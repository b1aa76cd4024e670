//! Statements of operators and of purges.

use super::event_columns;

/// A page of dead letters without their payloads; what stands in the brackets says which. Of a
/// payload only the size is looked up, and only for those on the page.
pub(in super::super) const DEAD_LETTERS: &str = "
select
    e.seq, e.shard, e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.ordering_key, e.tenant_id, e.status, e.attempts, e.last_error, e.settled_by,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.occurred_at), 0) as occurred_at,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.created_at), 0) as created_at,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.done_at), 0) as done_at,
    coalesce(octet_length(e.payload), octet_length(e.payload_bytes)) as payload_size
from (";

pub(in super::super) const DEAD_LETTERS_ON_PAGE: &str = "
) page
straight_join {p}outbox_event e force index (primary) on e.seq = page.seq";

/// The page of one status, in the order of the index; both statuses stand in one statement. What is
/// final or held stands under no shard there, so that it is in order of time.
pub(in super::super) const DEAD_LETTERS_PART: &str = "
(select e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.pending_shard is null and e.status = ";

pub(in super::super) const COUNT_DEAD: &str = "
select count(*) from {p}outbox_event e force index ({p}outbox_event_ready)
where e.pending_shard is null and e.status in ({dead}, {held})";

/// Where events are, without a lock: they are locked in order of `seq` then, so that neither
/// operators nor maintenance wait for each other in a circle.
pub(in super::super) const FIND_IDS: &str = "
select e.seq
from json_table(?, '$[*]' columns (
        event_id varchar(128) character set ascii collate ascii_bin path '$')) v
straight_join {p}outbox_event e force index ({p}outbox_event_id) on e.event_id = v.event_id";

/// Rows by their places.
macro_rules! picks {
    () => {
        "json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq"
    };
}

/// Locks the dead letters and held events among them.
pub(in super::super) const OPERATE_PICK: &str = "
select e.seq, e.event_id, e.status
from (select j.seq from json_table(?, '$[*]' columns (seq bigint path '$')) j) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq and e.status in ({dead}, {held})
for update";

/// What an operator does is noted before it is done: the row still has its attempts.
pub(in super::super) const AUDIT_OPERATION: &str = concat!(
    "
insert into {p}outbox_audit (event_id, action, attempts, extra)
select e.event_id, ?, e.attempts, ?
from ",
    picks!()
);

/// The token grows, so that a verdict still under way cannot swallow the replay.
pub(in super::super) const REPLAY: &str = concat!(
    "update ",
    picks!(),
    "
set e.status = {new}, e.attempts = 0, e.crashes = 0, e.available_at = utc_timestamp(6),
    e.done_at = null, e.locked_by = null, e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
);

pub(in super::super) const SKIP: &str = concat!(
    "update ",
    picks!(),
    "
set e.status = {dead}, e.lock_token = e.lock_token % 2147483647 + 1"
);

pub(in super::super) const DISCARD: &str = concat!("delete e from ", picks!());

pub(in super::super) const AUDIT_TRAIL: &str = "
select action, attempts, error, extra,
    coalesce(timestampdiff(microsecond, '1970-01-01', at), 0) as at
from {p}outbox_audit
where event_id = ?
order by id desc
limit ?";

/// What is final and old, without a lock: the rows are locked by their places then.
pub(in super::super) const FIND_FINAL: &str = "
select seq from {p}outbox_event force index ({p}outbox_event_ready)
where status = ? and pending_shard is null and moment < utc_timestamp(6) - interval ? microsecond
order by moment
limit ?";

/// Status and age stand on the DELETE too: a row replayed after the look stays.
pub(in super::super) const PURGE_FINAL: &str = concat!(
    "delete e from ",
    picks!(),
    "
where e.status = ? and e.done_at < utc_timestamp(6) - interval ? microsecond"
);

pub(in super::super) const PURGE_AUDIT: &str = "
delete from {p}outbox_audit
where at < utc_timestamp(6) - interval ? microsecond
order by at
limit ?";

pub(in super::super) const PURGE_INBOX: &str = "
delete from {p}inbox_processed
where processed_at < utc_timestamp(6) - interval ? microsecond
order by processed_at
limit ?";

/// The mode stays as it is until the purge has ended.
pub(in super::super) const LOCK_MODE: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 lock in share mode";

/// Looks at the head of the table only: what is old lies there.
pub(in super::super) const FIND_ANY: &str = "
select seq
from (
    select seq, coalesce(done_at, created_at) as since from {p}outbox_event order by seq limit ?
) head
where since < utc_timestamp(6) - interval ? microsecond";

pub(in super::super) const PURGE_ANY: &str = concat!(
    "delete e from ",
    picks!(),
    "
where coalesce(e.done_at, e.created_at) < utc_timestamp(6) - interval ? microsecond"
);

pub(in super::super) const EVENT: &str = concat!(
    "
select
    e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts, e.settled_by, e.last_error,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.available_at), 0) as available_at,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.created_at), 0) as created_at,
    timestampdiff(microsecond, '1970-01-01', e.done_at) as done_at, ",
    event_columns!(),
    "
from {p}outbox_event e
where e.event_id = ?"
);
