//! Every statement of the MySQL store; `{p}` is the table prefix.
//!
//! They run on connections that the store has set up: see [`super::SESSION`]. Lists come as one
//! JSON array of arrays, since there are no arrays to bind; `straight_join` makes them drive, so
//! that rows are found by primary key and locked in the order of the list. `force index` stands
//! where the planner was seen to go another way: through the primary key to find what is pending
//! of a key, or with a filter by another index, whose rows it would lock as well.

pub(super) mod admin;
pub(super) mod claim;
pub(super) mod wait;

/// What a row is read with, apart from what comes before it. A date that is none is due.
macro_rules! pending_columns {
    () => {
        pending_columns!("coalesce(e.locked_until <= utc_timestamp(6), false)")
    };
    ($lapsed:literal) => {
        concat!(
            "e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts,
    coalesce(timestampdiff(microsecond, utc_timestamp(6),
        greatest(e.available_at, coalesce(e.locked_until, e.available_at))), 0) as due_in,
    e.status = 0 and e.available_at > utc_timestamp(6)
        and (e.locked_until is null or e.locked_until < utc_timestamp(6)) as is_early,
    ",
            $lapsed,
            " as lapsed, "
        )
    };
}

/// The event itself, with the payload and the headers if they have no more bytes than said: twice for
/// the payload, once for the headers. A date that is none happened in 1970.
macro_rules! event_columns {
    () => {
        "coalesce(octet_length(e.payload), octet_length(e.payload_bytes)) as payload_size,
    octet_length(e.headers) as headers_size,
    e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.partition_key, e.tenant_id,
    case when octet_length(e.payload) <= ? then e.payload end as payload,
    case when octet_length(e.payload_bytes) <= ? then e.payload_bytes end as payload_bytes,
    e.content_type,
    case when octet_length(e.headers) <= ? then e.headers end as headers,
    coalesce(timestampdiff(microsecond, '1970-01-01', e.occurred_at), 0) as occurred_at"
    };
}

/// The oldest row of its key with this status. With the key in its order, for MySQL would sort the
/// whole key by `seq` alone.
macro_rules! oldest_of_key {
    ($status:literal) => {
        concat!(
            "(
        select o.seq from {p}outbox_event o force index ({p}outbox_event_key)
        where o.status = ",
            $status,
            " and o.shard = e.shard and o.pending_key = e.ordering_key
        order by o.status, o.shard, o.pending_key, o.seq
        limit 1)"
        )
    };
}

/// Whether an older row of the key of `e` waits for its time or for an operator: one look each, for a
/// range of two statuses would be looked through anew for each row.
macro_rules! is_blocked {
    () => {
        concat!(
            "coalesce(",
            oldest_of_key!("2"),
            " < e.seq, false)
    or coalesce(",
            oldest_of_key!("4"),
            " < e.seq, false)"
        )
    };
}

pub(super) use {event_columns, is_blocked, oldest_of_key, pending_columns};

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between utc_timestamp(6)
        and utc_timestamp(6) + interval 2 * lease_length microsecond"
    };
}

pub(super) use alive;

/// The newest migration laid down.
pub(super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

/// MariaDB 12 says `OFF` where all others say 0. At READ COMMITTED the server refuses every write
/// where it would have to log statements.
pub(super) const LAYOUT: &str = "
select shards, claim, ordered, newest_seq,
    cast(@@global.read_only as char) not in ('0', 'OFF')
        or cast(@@global.innodb_read_only as char) not in ('0', 'OFF') as replica,
    @@global.log_bin = 1 and @@session.binlog_format = 'STATEMENT' as logs_statements
from {p}outbox_setting where id = 1";

/// How far the database has counted. The statistics are not kept: see [`super::SESSION`].
pub(super) const LAST_SEQ: &str = "
select cast(coalesce(auto_increment, 1) as signed) - 1
from information_schema.tables
where table_schema = database() and table_name = '{p}outbox_event'";

/// The newest row. What was rolled back after it is not marked: a replica has never heard of that,
/// and may give it out again when it is made the primary.
pub(super) const NEWEST_SEQ: &str = "select coalesce(max(seq), 0) from {p}outbox_event";

pub(super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = ? where id = 1 and newest_seq < ?";

pub(super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = ?, ordered = ? where id = 1";

pub(super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";

pub(super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values (?, utc_timestamp(6) + interval ? microsecond, ?, ?)
on duplicate key update lease_until = values(lease_until),
    lease_length = values(lease_length), wants = values(wants)";

pub(super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = utc_timestamp(6) + interval ? microsecond, lease_length = ?, wants = ?
where owner = ?";

pub(super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit ?"
);

/// Moves are rare: one row lock lets them happen one after the other.
/// Whoever holds it also knows that the mode stays as it is.
pub(super) const LOCK_MOVES: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 for update";

/// Owners whose lease was written by a clock that was ahead.
pub(super) const AHEAD: &str = concat!(
    "select owner from {p}outbox_owner where lease_until > utc_timestamp(6) and not (",
    alive!(),
    ")"
);

/// Their leases on rows were written by the same clock; rows that wait have none. Walks over all new
/// rows, and runs only where there is such an owner. A row that somebody has locked does not hold the
/// takeover up.
pub(super) const ROWS_AHEAD: &str = "
select seq from {p}outbox_event force index ({p}outbox_event_ready)
where status = 0 and json_contains(?, json_quote(locked_by))
for update skip locked";

pub(super) const END_ROW_LEASES: &str = "
update json_table(?, '$[*]' columns (seq bigint path '$')) v
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq
set e.locked_until = '1970-01-01'";

pub(super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = ?) as entered";

/// Without a lock, which would wait for every shard that a living owner settles in: moves happen
/// one after the other, so what is free here is free until TAKE.
/// MySQL looks in a document for a document, not for a number: hence the text.
pub(super) const FREE: &str = "
select s.shard, s.epoch, s.owner is not null and s.owner <> ? as lapsed
from {p}outbox_shard s
where s.owner is null
   or s.owner = ? and not json_contains(?, cast(s.shard as char))
   or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
order by s.shard
limit ?";

/// In order of shard, as every statement that locks shards, so that none waits in a circle.
/// The lock waits for a settle under way: its verdicts count, later ones do not.
pub(super) const TAKE: &str = "
update json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) f
straight_join {p}outbox_shard s on s.shard = f.shard
set s.owner = ?, s.epoch = s.epoch + 1
where s.epoch = f.epoch";

pub(super) const RELEASE: &str = "
update json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) h
straight_join {p}outbox_shard s on s.shard = h.shard
set s.owner = null
where s.owner = ? and s.epoch = h.epoch";

pub(super) const RELEASE_ALL: &str =
    "update {p}outbox_shard set owner = null where owner = ? order by shard";

pub(super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = ?";

/// `{ranges}` stands for one RANGE per shard: one look at one table, however many shards there are.
/// What comes before a row is asked in the same snapshot; which new row of its key is the oldest, above
/// a floor only. The order is the index's: with what is the same for all rows in it, MariaDB sorts.
pub(super) const READ: &str = concat!(
    "select ",
    pending_columns!(),
    is_blocked!(),
    " as is_blocked,
    case when ? then ",
    oldest_of_key!("0"),
    " end as head, ",
    event_columns!(),
    "
from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = 0 and e.moment is null and ({ranges})
order by e.pending_shard, e.seq
limit ?"
);

pub(super) const RANGE: &str = "(e.pending_shard = ? and e.seq > ? and e.seq <= ?)";

/// Where a shard's page ends, if it has that many rows; several stand in one statement, joined by
/// UNION ALL.
pub(super) const READ_END: &str = "
(select e.pending_shard, e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = 0 and e.pending_shard = ? and e.moment is null and e.seq > ?
order by e.seq
limit 1 offset ?)";

/// The new rows of a key; several stand in one statement, joined by UNION ALL.
pub(super) const READ_KEY: &str = concat!(
    "
(select ",
    pending_columns!(),
    is_blocked!(),
    " as is_blocked, ",
    event_columns!(),
    "
from {p}outbox_event e force index ({p}outbox_event_key)
where e.status = 0 and e.shard = ? and e.pending_key = ?
order by e.seq
limit ?)"
);

/// The newest new row of a shard.
pub(super) const NEWEST: &str = "
select e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.status = 0 and e.pending_shard = ? and e.moment is null
order by e.seq desc
limit 1";

/// The oldest new row of each key behind a key, among so many rows. What is behind the last one of
/// these is passed by with the next look: a GROUP BY without a limit would be free to walk over all
/// rows of a key, and does where most keys have few.
pub(super) const HEADS: &str = "
select min(k.seq), k.pending_key, count(*)
from (
    select k.seq, k.pending_key
    from {p}outbox_event k force index ({p}outbox_event_key)
    where k.status = 0 and k.shard = ? and k.pending_key > ?
    order by k.pending_key, k.seq
    limit ?
) k
group by k.pending_key
order by k.pending_key";

/// New rows without a key.
pub(super) const HEADS_KEYLESS: &str = "
select k.seq from {p}outbox_event k force index ({p}outbox_event_key)
where k.status = 0 and k.shard = ? and k.pending_key is null and k.seq > ? and k.seq <= ?
order by k.seq
limit ?";

/// Rows that were found in the same snapshot.
pub(super) const READ_HEADS: &str = concat!(
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
pub(super) const READ_CONTENT: &str = concat!(
    "select e.seq, ",
    event_columns!(),
    "
from json_table(?, '$[*]' columns (shard smallint path '$[0]', seq bigint path '$[1]')) v
straight_join {p}outbox_event e force index (primary)
    on e.seq = v.seq and e.shard = v.shard and e.status = 0"
);

/// The fence is a lock, not a look: a takeover waits for the end of this transaction, and this
/// statement sees a takeover that came first.
///
/// The list is a derived table wherever rows are locked, since MySQL says of `json_table` beside
/// `for update` that it stands in two locking clauses; and the index is forced, since a scan of a
/// small table would lock every shard of it.
pub(super) const FENCE: &str = "
select s.shard
from (
    select j.shard, j.epoch
    from json_table(?, '$[*]' columns (shard smallint path '$[0]', epoch bigint path '$[1]')) j
) f
straight_join {p}outbox_shard s force index (primary) on s.shard = f.shard
where s.owner = ? and s.epoch = f.epoch
for update";

/// Verdicts as a statement unpacks them: row, fence, and what to write.
macro_rules! verdicts {
    () => {
        "json_table(?, '$[*]' columns (
        shard smallint path '$[0]', seq bigint path '$[1]', token int path '$[2]',
        status smallint path '$[3]', tried int path '$[4]', delay bigint path '$[5]',
        error varchar(4000) character set utf8mb4 path '$[6]',
        route varchar(256) character set utf8mb4 path '$[7]')) v"
    };
}

/// The same without what to write.
macro_rules! rows {
    () => {
        "json_table(?, '$[*]' columns (
        shard smallint path '$[0]', seq bigint path '$[1]', token int path '$[2]')) v"
    };
}

/// The same, for a statement that locks.
macro_rules! rows_to_lock {
    () => {
        "(select j.shard, j.seq, j.token from json_table(?, '$[*]' columns (
        shard smallint path '$[0]', seq bigint path '$[1]', token int path '$[2]')) j) v"
    };
}

/// Rows that a verdict may be written on.
macro_rules! open_rows {
    () => {
        "
straight_join {p}outbox_event e force index (primary)
    on e.seq = v.seq and e.shard = v.shard and e.lock_token = v.token and e.status in (0, 2)
"
    };
}

/// How a verdict changes a row; `tried` is 1 where the attempt counts. The token grows with every
/// verdict, so that a settle which is repeated after an unknown outcome changes nothing. No value
/// reads a column that another one changes: the order of assignments is the server's.
macro_rules! mark {
    () => {
        "set e.status = v.status,
    e.attempts = least(cast(e.attempts as signed) + v.tried, 2147483647),
    e.crashes = 0,
    e.available_at = case v.status
        when 2 then utc_timestamp(6) + interval v.delay microsecond
        else e.available_at end,
    e.done_at = case v.status when 2 then null else utc_timestamp(6) end,
    e.settled_by = v.route,
    e.last_error = coalesce(v.error, e.last_error),
    e.locked_by = null,
    e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
    };
}

pub(super) use {mark, open_rows, rows, rows_to_lock, verdicts};

/// Which verdicts apply, where not all of them do: nothing says which rows an UPDATE changed.
pub(super) const SETTLE_PICK: &str =
    concat!("select e.seq from ", rows_to_lock!(), open_rows!(), "for update");

pub(super) const SETTLE_DELETE: &str = concat!("delete e from ", rows!(), open_rows!());

pub(super) const SETTLE_MARK: &str = concat!("update ", verdicts!(), open_rows!(), mark!());

/// What failed leaves a line in the audit, told by the row as its verdict has left it.
pub(super) const AUDIT_FAILURES: &str = concat!(
    "
insert into {p}outbox_audit (event_id, action, attempts, error)
select
    e.event_id,
    case e.status when 2 then 'outbox-send-failed' else 'outbox-failed-permanent' end,
    e.attempts, e.last_error
from ",
    rows!(),
    "
straight_join {p}outbox_event e force index (primary) on e.seq = v.seq"
);
