//! Every statement of the PostgreSQL store; `{p}` is the table prefix.

pub(super) mod admin;
pub(super) mod claim;
pub(super) mod due;
pub(super) mod read;

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

pub(super) use {event_columns, pending_columns};

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between clock_timestamp()
        and clock_timestamp() + 2 * lease_length * interval '1 microsecond'"
    };
}

pub(super) use alive;

/// Whether an older row of the key of `e` waits for its time or for an operator; null where none of
/// them does. A value that is compared, not an `exists`: that could be turned into a join, which a
/// planner that takes the table for empty does with all that a shard has.
macro_rules! blocked {
    () => {
        "e.seq > (
                select o.seq from {p}outbox_event o
                where o.shard = e.shard and o.ordering_key = e.ordering_key and o.status in (2, 4)
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
            " and e.status + 0 = 0 and e.ordering_key > ",
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
            " and e.status + 0 = 0 and e.ordering_key > head.ordering_key
        order by e.ordering_key, e.seq
        limit 1
    ) e
)"
        )
    };
}

pub(super) use {blocked, heads};

/// The newest migration laid down.
pub(super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

pub(super) const LAYOUT: &str = "
select shards, claim, ordered, newest_seq, pg_is_in_recovery() as replica
from {p}outbox_setting where id = 1";

/// A role needs a right to read the sequence, which it does not need to write events.
pub(super) const CAN_READ_SEQ: &str = "
select coalesce(
    has_sequence_privilege(to_regclass('{p}outbox_event_seq_seq')::oid, 'select'), false)";

/// How far the database has counted.
pub(super) const LAST_SEQ: &str = "
select case when is_called then last_value else last_value - 1 end
from {p}outbox_event_seq_seq";

pub(super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = $1 where id = 1 and newest_seq < $1";

pub(super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = $1, ordered = $2 where id = 1";

pub(super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";

pub(super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values ($1, clock_timestamp() + $2 * interval '1 microsecond', $2, $3)
on conflict (owner) do update
set lease_until = excluded.lease_until, lease_length = excluded.lease_length,
    wants = excluded.wants";

pub(super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = clock_timestamp() + $2 * interval '1 microsecond', lease_length = $2,
    wants = $3
where owner = $1";

pub(super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit $1"
);

/// A move that cannot get a lock gives up soon: the relay must renew meanwhile. One that has the lock
/// and falls silent is ended by the server, or nobody could take over from a machine that is frozen
/// or cut off until the network notices, which may take hours.
pub(super) const BE_PATIENT: &str =
    "set local lock_timeout = '3s'; set local idle_in_transaction_session_timeout = '5s'";

/// Moves are rare: one row lock lets them happen one after the other.
/// Whoever holds it also knows that the mode stays as it is.
pub(super) const LOCK_MOVES: &str =
    "select claim, ordered from {p}outbox_setting where id = 1 for update";

/// Owners whose lease was written by a clock that was ahead.
pub(super) const AHEAD: &str = concat!(
    "select owner from {p}outbox_owner where lease_until > clock_timestamp() and not (",
    alive!(),
    ")"
);

/// Their leases on rows were written by the same clock. Walks over all that is new, and runs only
/// where there is such an owner: no other row is leased. A row that somebody has locked does not hold the takeover up.
pub(super) const END_ROW_LEASES: &str = "
update {p}outbox_event
set locked_until = to_timestamp(0)
where ctid = any(array(
        select ctid from {p}outbox_event
        where status = 0 and shard >= 0 and locked_by = any($1)
        for update skip locked
    ))";

pub(super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = $1) as entered";

/// In order of shard, as every statement that locks shards, so that none waits in a circle.
/// The lock waits for a settle under way: its verdicts count, later ones do not.
pub(super) const TAKE: &str = "
with free as materialized (
    select s.shard, s.owner is not null and s.owner <> $1 as lapsed
    from {p}outbox_shard s
    where s.owner is null
       or s.owner = $1 and s.shard <> all($3)
       or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
    order by s.shard
    limit $2
    for update of s
)
update {p}outbox_shard s
set owner = $1, epoch = s.epoch + 1
from free
where s.shard = free.shard
returning s.shard, s.epoch, free.lapsed";

pub(super) const RELEASE: &str = "
with held as materialized (
    select s.shard
    from {p}outbox_shard s
    join unnest($2::smallint[], $3::bigint[]) as h (shard, epoch) on h.shard = s.shard
    where s.owner = $1 and s.epoch = h.epoch
    order by s.shard
    for update of s
)
update {p}outbox_shard s set owner = null from held where s.shard = held.shard";

pub(super) const RELEASE_ALL: &str = "
with held as materialized (
    select shard from {p}outbox_shard where owner = $1 order by shard for update
)
update {p}outbox_shard s set owner = null from held where s.shard = held.shard";

pub(super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = $1";

/// The fence is a lock, not a look: `for share` holds the shard's row until the end, so a
/// takeover waits for this statement, and this statement sees a takeover that came first. It must
/// not wait for an event's row longer than a takeover can wait for it.
macro_rules! fence {
    ($shards:literal, $epochs:literal) => {
        concat!(
            "
with patience as materialized (
    select set_config('lock_timeout', '3s', true) as set
), fence as materialized (
    select s.shard
    from patience
    cross join unnest(",
            $shards,
            "::smallint[], ",
            $epochs,
            "::bigint[]) as f (shard, epoch)
    join {p}outbox_shard s on s.shard = f.shard
    where s.owner = $1 and s.epoch = f.epoch and patience.set is not null
    order by s.shard
    for share of s
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
            where e.shard = v.shard and e.seq = v.seq and e.status = 0
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
    and e.status < 1"
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
                    when 2 then clock_timestamp() + v.delay * interval '1 microsecond'
                    else e.available_at end,
                case v.status when 2 then null else clock_timestamp() end,
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
        case status when 2 then 'outbox-send-failed' else 'outbox-failed-permanent' end,
        attempts, ($8::text[])[($9::integer[])[n]]
    from settled
    where status in (3, 4) or status = 2 and ($6::integer[])[n] = 1
)"
    };
}

/// Which rows were settled is said only where it is not all of them.
macro_rules! both_facts {
    () => {
        "
select
    array(select shard from fence) as locked,
    case when (select count(*) from settled) < cardinality($3)
        then array(select seq from settled) end as settled"
    };
}

pub(super) use {audit, mark, under_token};

pub(super) const SETTLE_DELETE: &str = concat!(
    fence!("$5", "$6"),
    ", settled as (
    delete from {p}outbox_event e
    where ",
    under_token!("$2", "$3", "$4", " where v.shard = any(array(select shard from fence))"),
    "
    returning e.seq
)",
    both_facts!()
);

pub(super) const SETTLE_MARK: &str = concat!(
    fence!("$11", "$12"),
    ", settled as (",
    mark!(),
    under_token!("$2", "$3", "$4", " where v.shard = any(array(select shard from fence))"),
    audit!(),
    both_facts!()
);
