//! Every statement of the PostgreSQL store; `{p}` is the table prefix.

pub(super) mod claims;
pub(super) mod events;
pub(super) mod operations;
pub(super) mod ownership;
pub(super) mod schema;
pub(super) mod statistics;

/// What a row is read with, apart from `before`. Times go out as they are stored, for arithmetic
/// on `numeric` would cost as much as all the rest.
macro_rules! pending_columns {
    ($locked_until:literal) => {
        concat!(
            "e.seq, e.shard, e.ordering_key, e.lock_token, e.status, e.attempts, e.available_at,
    ",
            $locked_until,
            " as locked_until, (select clock_timestamp()) as now, "
        )
    };
}

/// The event itself, with the payload and the headers if they have no more bytes than said. What is
/// `json` is sent as the text that it is; a cast would copy it twice. It is measured by a cast, which
/// unpacks it: not if it has more bytes packed already.
macro_rules! event_columns {
    // With the bytes that they have at least, below zero: these cost nothing.
    (about $payload:literal, $headers:literal) => {
        event_columns!(
            "-pg_column_size(e.payload)",
            "-pg_column_size(e.headers)",
            $payload,
            $headers
        )
    };
    // With the bytes that they have, if what is packed is no larger than an event.
    (exact $payload:literal, $headers:literal) => {
        event_columns!(
            concat!(
                "case when pg_column_size(e.payload) > ",
                $payload,
                " then -pg_column_size(e.payload) else octet_length(e.payload::text) end"
            ),
            concat!(
                "case when pg_column_size(e.headers) > ",
                $headers,
                " then -pg_column_size(e.headers) else octet_length(e.headers::text) end"
            ),
            $payload,
            $headers
        )
    };
    ($payload_size:expr, $headers_size:expr, $payload:literal, $headers:literal) => {
        concat!(
            "coalesce(octet_length(e.payload_bytes), ",
            $payload_size,
            ") as payload_size, ",
            $headers_size,
            " as headers_size,
    e.event_id, e.event_type, e.event_version, e.aggregate_type, e.aggregate_id,
    e.partition_key, e.tenant_id,
    case when pg_column_size(e.payload) > ",
            $payload,
            " then null when octet_length(e.payload::text) <= ",
            $payload,
            " then e.payload end as payload,
    case when octet_length(e.payload_bytes) <= ",
            $payload,
            " then e.payload_bytes end as payload_bytes,
    e.content_type,
    case when pg_column_size(e.headers) > ",
            $headers,
            " then null when octet_length(e.headers::text) <= ",
            $headers,
            " then e.headers end as headers,
    e.occurred_at"
        )
    };
}

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between clock_timestamp()
        and clock_timestamp() + 2 * lease_length * interval '1 microsecond'"
    };
}

/// Whether an older row of the key of `e` waits for its time or for an operator; null where none of
/// them does. A value that is compared, not an `exists`: that could be turned into a join, which a
/// planner that takes the table for empty does with all that a shard has.
macro_rules! blocked {
    () => {
        "e.seq > (
                select o.seq from {p}outbox_event o
                where o.shard = e.shard and o.ordering_key = e.ordering_key and o.status in ({waiting}, {held})
                order by o.seq
                limit 1
            )"
    };
}

/// The oldest new row of each key of a shard, for keys after one: from one head to the next, each by one
/// look at the index, so that a long queue behind a head costs nothing. Nobody asks for the next head
/// when there are enough.
macro_rules! heads {
    ($shard:literal, $after:literal) => {
        concat!(
            "with recursive head as (
    (select e.ordering_key, e.seq
    from {p}outbox_event e
    where e.shard = ",
            $shard,
            " and e.status + 0 = {new} and e.ordering_key > ",
            $after,
            "
    order by e.ordering_key, e.seq
    limit 1)
    union all
    select e.ordering_key, e.seq
    from head
    cross join lateral (
        select e.ordering_key, e.seq
        from {p}outbox_event e
        where e.shard = ",
            $shard,
            " and e.status + 0 = {new} and e.ordering_key > head.ordering_key
        order by e.ordering_key, e.seq
        limit 1
    ) e
)"
        )
    };
}

/// New rows under their tokens, found by shard and `seq`, which are in order of `seq`. A row that is
/// not new was decided since it was read, and its token has moved.
///
/// A planner that takes the table for empty, as it does after a vacuum of a drained one, would
/// compare every row with every verdict. So there is nothing to join that could be turned round:
/// each row is looked up by itself, then changed at its place; and the status is said there in a
/// way that keeps the planner from walking a whole index of what is new instead.
///
/// `unlocked` leaves out the rows that another transaction has locked: nobody waits for them.
macro_rules! under_token {
    ($shards:literal, $seqs:literal, $tokens:literal, $only:literal) => {
        under_token!(@ $shards, $seqs, $tokens, $only, "offset 0")
    };
    (unlocked $shards:literal, $seqs:literal, $tokens:literal) => {
        under_token!(@ $shards, $seqs, $tokens, "", "for update skip locked")
    };
    (@ $shards:literal, $seqs:literal, $tokens:literal, $only:literal, $look:literal) => {
        concat!(
            "e.ctid = any(array(
        select it.place
        from unnest(",
            $shards,
            "::smallint[], ",
            $seqs,
            "::bigint[]) as v (shard, seq)
        cross join lateral (
            select e.ctid as place
            from {p}outbox_event e
            where e.shard = v.shard and e.seq = v.seq and e.status = {new}
            ",
            $look,
            "
        ) it",
            $only,
            "
    ))
    and e.lock_token = (",
            $tokens,
            "::integer[])[width_bucket(e.seq, ",
            $seqs,
            "::bigint[])]
    and e.status < {done}"
        )
    };
}

/// How a verdict changes a row; `tried` is 1 where the attempt counts. The token grows with every
/// verdict, so that a settle which is repeated after an unknown outcome changes nothing.
macro_rules! mark {
    () => {
        "
    update {p}outbox_event e
    set crashes = 0,
        locked_by = null,
        locked_until = null,
        lock_token = e.lock_token % 2147483647 + 1,
        (status, attempts, available_at, done_at, settled_by, last_error) = (
            select
                v.status,
                least(e.attempts::bigint + v.tried, 2147483647)::integer,
                case v.status
                    when {waiting} then clock_timestamp() + v.delay * interval '1 microsecond'
                    else e.available_at end,
                case v.status when {waiting} then null else clock_timestamp() end,
                v.route,
                coalesce(v.error, e.last_error)
            from (select width_bucket(e.seq, $3::bigint[]) as n offset 0) at
            cross join lateral (
                select
                    ($5::smallint[])[n] as status, ($6::integer[])[n] as tried,
                    ($7::bigint[])[n] as delay, ($8::text[])[($9::integer[])[n]] as error,
                    ($8::text[])[($10::integer[])[n]] as route
            ) v
        )
    where "
    };
}

/// What failed leaves a line in the audit; what succeeded or was put off leaves none.
macro_rules! audit {
    () => {
        "
    returning e.seq, e.event_id, e.status, e.attempts, width_bucket(e.seq, $3::bigint[]) as n
), audit as (
    insert into {p}outbox_audit (event_id, action, attempts, error)
    select
        event_id,
        case status when {waiting} then 'outbox-send-failed' else 'outbox-failed-permanent' end,
        attempts, ($8::text[])[($9::integer[])[n]]
    from settled
    where status in ({dead}, {held}) or status = {waiting} and ($6::integer[])[n] = 1
)"
    };
}

pub(super) use {alive, audit, blocked, event_columns, heads, mark, pending_columns, under_token};
