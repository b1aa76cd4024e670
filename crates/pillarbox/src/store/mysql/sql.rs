//! Every statement of the MySQL store; `{p}` is the table prefix.
//!
//! They run on connections that the store has set up: see [`super::SESSION`]. Lists come as one
//! JSON array of arrays, since there are no arrays to bind; `straight_join` makes them drive, so
//! that rows are found by primary key and locked in the order of the list. `force index` stands
//! where the planner was seen to go another way: through the primary key to find what is pending
//! of a key, or with a filter by another index, whose rows it would lock as well. New rows all have
//! the same `moment`: it is named for the index, in which `seq` stands behind it.

pub(super) mod claims;
pub(super) mod events;
pub(super) mod operations;
pub(super) mod ownership;
pub(super) mod schema;
pub(super) mod statistics;

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
    e.status = {new} and e.available_at > utc_timestamp(6)
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

/// Whether an older row of the key of `e` waits for its time or for an operator: one look each, for
/// a range of two statuses would be looked through anew for each row.
macro_rules! is_blocked {
    () => {
        concat!(
            "coalesce(",
            oldest_of_key!("{waiting}"),
            " < e.seq, false)
    or coalesce(",
            oldest_of_key!("{held}"),
            " < e.seq, false)"
        )
    };
}

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between utc_timestamp(6)
        and utc_timestamp(6) + interval 2 * lease_length microsecond"
    };
}

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
    on e.seq = v.seq and e.shard = v.shard and e.lock_token = v.token and e.status in ({new}, {waiting})
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
        when {waiting} then utc_timestamp(6) + interval v.delay microsecond
        else e.available_at end,
    e.done_at = case v.status when {waiting} then null else utc_timestamp(6) end,
    e.settled_by = v.route,
    e.last_error = coalesce(v.error, e.last_error),
    e.locked_by = null,
    e.locked_until = null,
    e.lock_token = e.lock_token % 2147483647 + 1"
    };
}

pub(super) use {
    alive, event_columns, is_blocked, mark, oldest_of_key, open_rows, pending_columns, rows,
    rows_to_lock, verdicts,
};
