//! Statements of operators and of purges.

use super::event_columns;

/// A page of dead letters without their payloads; the rest of the statement says which.
pub(in super::super) const DEAD_LETTERS: &str = "
select
    e.seq, e.shard, e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.ordering_key, e.tenant_id, e.status, e.attempts, e.last_error, e.settled_by,
    e.occurred_at,
    e.created_at, e.done_at,
    coalesce(octet_length(e.payload::text), octet_length(e.payload_bytes), 0)::bigint as payload_size
from {p}outbox_event e
where e.status in ({dead}, {held})";

pub(in super::super) const COUNT_DEAD: &str = "select count(*) from {p}outbox_event e where e.status in ({dead}, {held}) and e.done_at > '-infinity'";

/// A list that a person waits for gives up before the person does.
pub(in super::super) const LIMIT_TIME: &str = "set local statement_timeout = '10s'";

/// Where events are: an operation finds its rows by `seq`.
pub(in super::super) const FIND_IDS: &str =
    "select seq from {p}outbox_event where event_id = any($1)";

/// In order of their places, as everyone who locks rows: so nobody waits in a circle. The sum leads
/// the planner to the index by `seq`, as with the pending rows.
macro_rules! picked {
    ($statuses:literal) => {
        concat!(
            "
with found as materialized (
    select e.event_id, e.status, e.attempts
    from {p}outbox_event e
    where (select set_config('lock_timeout', '3s', true)) is not null
      and e.seq = any($1) and e.status + 0 in ({dead}, {held})
    order by e.ctid
    for update
), picked as (
    select event_id, attempts from found where status in ",
            $statuses,
            "
), noted as (
    insert into {p}outbox_audit (event_id, action, attempts, extra)
    select event_id, $2, attempts, $3::json from picked
), changed as ("
        )
    };
}

/// How many were found, and which were changed.
macro_rules! operated {
    () => {
        "
    returning e.seq, e.event_id
)
select
    (select count(*) from found),
    array(select seq from changed order by seq, event_id),
    array(select event_id from changed order by seq, event_id)"
    };
}

/// The token grows, so that a verdict still under way cannot swallow the replay.
pub(in super::super) const REPLAY: &str = concat!(
    picked!("({dead}, {held})"),
    "
    update {p}outbox_event e
    set status = {new}, attempts = 0, crashes = 0, available_at = clock_timestamp(), done_at = null,
        locked_by = null, locked_until = null, lock_token = e.lock_token % 2147483647 + 1
    from picked
    where e.event_id = picked.event_id",
    operated!()
);

pub(in super::super) const SKIP: &str = concat!(
    picked!("({held})"),
    "
    update {p}outbox_event e
    set status = {dead}, lock_token = e.lock_token % 2147483647 + 1
    from picked
    where e.event_id = picked.event_id",
    operated!()
);

pub(in super::super) const DISCARD: &str = concat!(
    picked!("({dead}, {held})"),
    "
    delete from {p}outbox_event e
    using picked
    where e.event_id = picked.event_id",
    operated!()
);

pub(in super::super) const AUDIT_TRAIL: &str = "
select action, attempts, error, extra::text as extra, at
from {p}outbox_audit
where event_id = $1
order by id desc
limit $2";

/// Rows that others are at work on are passed by, so that nobody waits in a circle. Status and age
/// stand on the DELETE itself too: a row replayed after the inner select stays. The age is worked
/// out once, in a select of its own: a clock that is asked for every row would keep the planner
/// from looking it up in the index. And rows go by their places, so that no plan can look for them
/// in the whole table.
macro_rules! purge_final {
    ($status:literal, $index:literal) => {
        concat!(
            "
delete from {p}outbox_event
where ctid = any(array(
        select ctid from {p}outbox_event
        where status in ",
            $index,
            " and status = ",
            $status,
            "
          and done_at < (select clock_timestamp() - $1 * interval '1 microsecond')
        order by done_at
        limit $2
        for update skip locked
    ))
  and status = ",
            $status,
            "
  and done_at < (select clock_timestamp() - $1 * interval '1 microsecond')"
        )
    };
}

pub(in super::super) const PURGE_DONE: &str = purge_final!("{done}", "({done})");

pub(in super::super) const PURGE_DEAD: &str = purge_final!("{dead}", "({dead}, {held})");

pub(in super::super) const PURGE_AUDIT: &str = "
delete from {p}outbox_audit
where ctid = any(array(
        select ctid from {p}outbox_audit
        where at < (select clock_timestamp() - $1 * interval '1 microsecond')
        order by at
        limit $2
    ))";

pub(in super::super) const PURGE_INBOX: &str = "
delete from {p}inbox_processed
where ctid = any(array(
        select ctid from {p}inbox_processed
        where processed_at < (select clock_timestamp() - $1 * interval '1 microsecond')
        order by processed_at
        limit $2
    ))";

/// The mode stays as it is until the purge has ended.
pub(in super::super) const LOCK_MODE: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 for share";

/// Looks at the heads only: what is old lies there, or comes there when its time has come.
pub(in super::super) const PURGE_ANY: &str = "
delete from {p}outbox_event
where ctid = any(array(
        select place from (
            (select e.place, e.created_at as since
             from {p}outbox_shard s
             cross join lateral (
                select ctid as place, created_at from {p}outbox_event e
                where e.shard = s.shard and e.status = {new}
                order by e.seq
                limit (select $2::bigint)
             ) e)
            union all
            (select e.place, e.created_at
             from {p}outbox_shard s
             cross join lateral (
                select ctid as place, created_at from {p}outbox_event e
                where e.shard = s.shard and e.status = {waiting}
                order by e.available_at, e.seq
                limit (select $2::bigint)
             ) e)
            union all
            (select ctid, done_at from {p}outbox_event
             where status = {done} order by done_at limit $2)
            union all
            (select ctid, done_at from {p}outbox_event
             where status in ({dead}, {held}) order by done_at limit $2)
        ) old
        where since < (select clock_timestamp() - $1 * interval '1 microsecond')
        limit $2
    ))
  and coalesce(done_at, created_at) < (select clock_timestamp() - $1 * interval '1 microsecond')";

pub(in super::super) const EVENT: &str = concat!(
    "
select
    e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts, e.settled_by, e.last_error,
    e.available_at,
    e.created_at, e.done_at, ",
    event_columns!(exact "$2", "$3"),
    "
from {p}outbox_event e
where e.event_id = $1"
);
