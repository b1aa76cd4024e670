//! Statements of operators and of purges.

use super::{fits, row_columns};

/// Both ends of a page are places in the index of dead letters, and stand outside of it.
macro_rules! given_up {
    () => {
        "
from {p}outbox_event
where status in ({dead}, {held})
  and (done_at, seq) > (?1, ?2) and (done_at, seq) < (?3, ?4)
  and (?5 is null or status = ?5)
  and (?6 is null or event_type = ?6)
  and (?7 is null or aggregate_type = ?7)
  and (?8 is null or aggregate_id = ?8)
  and (?9 is null or ordering_key = ?9)
  and (?10 is null or tenant_id = ?10)
  and (?11 is null or instr(last_error, ?11) > 0)"
    };
}

/// A page of dead letters; of a payload only its size is looked up.
macro_rules! dead_letters {
    ($order:literal) => {
        concat!(
            "
select
    seq, shard, event_id, event_type, event_version, aggregate_type, aggregate_id, ordering_key,
    tenant_id, status, attempts, last_error, settled_by, occurred_at, created_at, done_at,
    coalesce(octet_length(payload), octet_length(payload_bytes)) as payload_size",
            given_up!(),
            $order,
            " limit +?12"
        )
    };
}

pub(in super::super) const DEAD_LETTERS_NEWEST_FIRST: &str =
    dead_letters!(" order by done_at desc, seq desc");

pub(in super::super) const DEAD_LETTERS_OLDEST_FIRST: &str =
    dead_letters!(" order by done_at, seq");

pub(in super::super) const COUNT_DEAD: &str = concat!("select count(*)", given_up!());

/// Where events are: an operation finds its rows by `seq`.
pub(in super::super) const FIND_IDS: &str =
    "select seq from {p}outbox_event where event_id in (select value from json_each(?1))";

/// Runs inside `begin immediate`, so that the statements that follow find the same rows.
pub(in super::super) const OPERATE_PICK: &str = "
select seq, status, event_id
from {p}outbox_event
where seq in (select value from json_each(?1)) and status in ({dead}, {held})
order by seq";

/// What an operator does is noted before it is done: the row still has its attempts.
pub(in super::super) const AUDIT_OPERATION: &str = "
insert into {p}outbox_audit (event_id, action, attempts, extra)
select event_id, ?2, attempts, ?3
from {p}outbox_event
where seq in (select value from json_each(?1))";

/// The token grows, so that a verdict still under way cannot swallow the replay.
pub(in super::super) const REPLAY: &str = "
update {p}outbox_event
set status = {new}, attempts = 0, crashes = 0, available_at = {now}, done_at = null,
    locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1
where seq in (select value from json_each(?1))";

pub(in super::super) const SKIP: &str = "
update {p}outbox_event
set status = {dead}, lock_token = lock_token % 2147483647 + 1
where seq in (select value from json_each(?1))";

pub(in super::super) const DISCARD: &str = "
delete from {p}outbox_event
where seq in (select value from json_each(?1))";

pub(in super::super) const AUDIT_TRAIL: &str = "
select action, attempts, error, extra, at
from {p}outbox_audit
where event_id = ?1
order by id desc
limit +?2";

/// Status and age stand on the DELETE itself too, as on every database.
macro_rules! purge_final {
    ($indexed:literal, $status:literal) => {
        concat!(
            "
delete from {p}outbox_event
where seq in (
        select seq from {p}outbox_event
        where ",
            $indexed,
            " and ",
            $status,
            " and done_at < {now} - ?1
        order by done_at
        limit +?2
    )
  and ",
            $status,
            " and done_at < {now} - ?1"
        )
    };
}

pub(in super::super) const PURGE_DONE: &str = purge_final!("status = {done}", "status = {done}");

pub(in super::super) const PURGE_DEAD: &str =
    purge_final!("status in ({dead}, {held})", "status = {dead}");

pub(in super::super) const PURGE_AUDIT: &str = "
delete from {p}outbox_audit
where id in (select id from {p}outbox_audit where at < {now} - ?1 order by at limit +?2)
  and at < {now} - ?1";

pub(in super::super) const PURGE_INBOX: &str = "
delete from {p}inbox_processed
where (consumer_name, source, event_id) in (
        select consumer_name, source, event_id from {p}inbox_processed
        where processed_at < {now} - ?1
        order by processed_at
        limit +?2
    )
  and processed_at < {now} - ?1";

/// Looks at the heads only: what is old lies there. All rows are in shard 0.
pub(in super::super) const PURGE_ANY: &str = "
delete from {p}outbox_event
where seq in (
        select seq from (
            select * from (
                select seq, created_at as since from {p}outbox_event
                where shard = 0 and status = {new}
                order by seq
                limit +?2)
            union all
            select * from (
                select seq, created_at from {p}outbox_event
                where shard = 0 and status = {waiting}
                order by available_at, seq
                limit +?2)
            union all
            select * from (
                select seq, done_at from {p}outbox_event
                where status = {done}
                order by done_at
                limit +?2)
            union all
            select * from (
                select seq, done_at from {p}outbox_event
                where status in ({dead}, {held})
                order by done_at, seq
                limit +?2)
        )
        where since < {now} - ?1
        limit +?2
    )
  and coalesce(done_at, created_at) < {now} - ?1";

pub(in super::super) const EVENT: &str = concat!(
    "select shard, available_at, created_at, done_at, settled_by, last_error, ",
    row_columns!("0", "locked_until", "?2", "?3"),
    "
from {p}outbox_event
where event_id = ?1"
);
