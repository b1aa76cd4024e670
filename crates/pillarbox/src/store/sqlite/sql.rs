//! Every statement of the SQLite store; `{p}` is the table prefix, `{now}` the clock.
//!
//! A limit, and what the indexes of new and of waiting rows are searched by, have a plus: SQLite plans a
//! statement anew each time a bare one is bound, and the second once a table was analysed.

pub(super) mod claims;
pub(super) mod events;
pub(super) mod operations;
pub(super) mod ownership;
pub(super) mod schema;
pub(super) mod statistics;

/// One reading per statement, milliseconds at best; rows hold microseconds.
pub(super) const NOW: &str =
    "cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000";

/// A row as it is read. Each value is handed over by itself, at a price that a hundred thousand
/// rows feel: small numbers share one, and so do the two kinds of payload. Payload and headers come
/// if they have no more bytes than said; in place of a payload come the two sizes, in one number.
/// Said are: what comes before the row, until when it counts as leased, and the two sizes.
macro_rules! row_columns {
    ($before:expr, $until:literal, $payload:literal, $headers:literal) => {
        concat!(
            "seq,
    (lock_token << 32) | attempts as counts,
    (event_version << 7) | (status << 4) | ((",
            $before,
            ") << 2) | iif(",
            $until,
            " is null, 0, iif(",
            $until,
            " <= {now}, 2, 1)) as state,
    max(available_at, coalesce(",
            $until,
            ", available_at)) - {now} as due_in, ordering_key,
    event_id, event_type, aggregate_type, aggregate_id, partition_key, tenant_id,
    iif(",
            fits!($payload, $headers),
            ", coalesce(payload, payload_bytes),
        (coalesce(octet_length(payload), octet_length(payload_bytes), 0) << 32)
            | coalesce(octet_length(headers), 0)) as payload,
    content_type, iif(",
            fits!($payload, $headers),
            ", headers, null) as headers, occurred_at"
        )
    };
}

/// Whether payload and headers are sent. Their sizes are read without reading them.
macro_rules! fits {
    ($payload:literal, $headers:literal) => {
        concat!(
            "coalesce(octet_length(payload), octet_length(payload_bytes), 0) <= ",
            $payload,
            " and coalesce(octet_length(headers), 0) <= ",
            $headers
        )
    };
}

/// Whether an older row of the key of `e` waits for its time or for an operator.
macro_rules! is_blocked {
    () => {
        "exists (
        select 1 from {p}outbox_event o
        where o.shard = e.shard and o.ordering_key = e.ordering_key and o.seq < e.seq
          and o.status in ({waiting}, {held}))"
    };
}

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between {now}
        and {now} + 2 * lease_length"
    };
}

/// The oldest new row of each key behind a key, from one to the next, each by one look at the index,
/// so that a long queue behind it costs nothing. The cross join lets one be looked at before the next
/// one is asked for, so that nobody asks when there are enough.
macro_rules! heads {
    ($after:literal) => {
        concat!(
            "head (ordering_key, seq) as (
    select * from (
        select o.ordering_key, o.seq
        from {p}outbox_event o
        where o.shard = +?1 and o.ordering_key > ",
            $after,
            " and o.status = {new}
        order by o.ordering_key, o.seq
        limit 1)
    union all
    select o.ordering_key, o.seq
    from head
    cross join {p}outbox_event o on o.seq = (
        select n.seq
        from {p}outbox_event n
        where n.shard = +?1 and n.ordering_key > head.ordering_key and n.status = {new}
        order by n.ordering_key, n.seq
        limit 1)
)"
        )
    };
}

/// Rows that a verdict may be written on. They come as one JSON array, since SQLite has no arrays
/// to bind; rows with the same token share a statement, which spares a comparison in JSON.
macro_rules! open_rows {
    () => {
        concat!(
            "
where seq in (select value from json_each(?1))",
            is_open!()
        )
    };
}

macro_rules! is_open {
    () => {
        "
  and shard = ?2 and lock_token = ?3 and status in ({new}, {waiting})"
    };
}

/// How a verdict changes a row; `?6` is 1 where the attempt counts. The token grows with every
/// verdict, so that a settle which is repeated after an unknown outcome changes nothing.
macro_rules! mark {
    () => {
        "
update {p}outbox_event
set status = ?5,
    attempts = min(attempts + ?6, 2147483647),
    crashes = 0,
    last_error = coalesce(?7, last_error),
    settled_by = ?8,
    locked_by = null,
    locked_until = null,
    lock_token = lock_token % 2147483647 + 1,"
    };
}

/// The end of a row.
macro_rules! end {
    () => {
        concat!(mark!(), " done_at = {now}", open_rows!())
    };
}

/// Rows that are to wait, with the time of each.
macro_rules! put_off {
    () => {
        concat!(
            mark!(),
            "
    done_at = null,
    available_at = {now} + (it.value ->> 1)
from json_each(?1) as it
where seq = it.value ->> 0",
            is_open!()
        )
    };
}

pub(super) use {
    alive, end, fits, heads, is_blocked, is_open, mark, open_rows, put_off, row_columns,
};
