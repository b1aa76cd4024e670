//! Every statement of the SQLite store; `{p}` is the table prefix, `{now}` the clock.
//!
//! A limit, and what the indexes of new and of waiting rows are searched by, have a plus: SQLite plans a
//! statement anew each time a bare one is bound, and the second once a table was analysed.

pub(super) mod admin;
pub(super) mod claim;

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
          and o.status in (2, 4))"
    };
}

pub(super) use {fits, is_blocked, row_columns};

/// Owners that are alive. A lease that ends later than twice its length from now was written by a
/// clock that was ahead, and would keep its shards from everybody for as long. Twice, so that a
/// small step back of the clock costs nobody the lease.
macro_rules! alive {
    () => {
        "lease_until between {now}
        and {now} + 2 * lease_length"
    };
}

pub(super) use alive;

/// The newest migration laid down.
pub(super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

pub(super) const LAYOUT: &str =
    "select shards, claim, ordered, newest_seq from {p}outbox_setting where id = 1";

/// How far the database has counted; it never gives a smaller number than that of a row.
pub(super) const LAST_SEQ: &str = "
select max(
    coalesce((select seq from sqlite_sequence where name = '{p}outbox_event'), 0),
    coalesce((select max(seq) from {p}outbox_event), 0))";

pub(super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = ?1 where id = 1 and newest_seq < ?1";

pub(super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = ?1, ordered = ?2 where id = 1";

pub(super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";

pub(super) const JOIN: &str = "
insert into {p}outbox_owner (owner, lease_until, lease_length, wants)
values (?1, {now} + ?2, ?2, ?3)
on conflict (owner) do update
set lease_until = excluded.lease_until, lease_length = excluded.lease_length,
    wants = excluded.wants";

pub(super) const RENEW: &str = "
update {p}outbox_owner
set lease_until = {now} + ?2, lease_length = ?2, wants = ?3
where owner = ?1";

pub(super) const MEMBERS: &str = concat!(
    "
select o.owner, o.wants,
    (select count(*) from {p}outbox_shard s where s.owner = o.owner) as held
from {p}outbox_owner o
where o.wants > 0 and ",
    alive!(),
    "
order by held desc, o.owner
limit +?1"
);

/// Runs inside `begin immediate`, which is the lock: the mode stays as it is until the end.
pub(super) const MODE: &str = "select claim, ordered from {p}outbox_setting where id = 1";

/// Owners whose lease was written by a clock that was ahead.
pub(super) const AHEAD: &str =
    concat!("select owner from {p}outbox_owner where lease_until > {now} and not (", alive!(), ")");

/// Their leases on rows were written by the same clock; rows that wait have none. Walks over all new
/// rows, and runs only where there is such an owner.
pub(super) const END_ROW_LEASES: &str = "
update {p}outbox_event
set locked_until = 0
where shard = 0 and status = 0 and locked_by in (select value from json_each(?1))";

pub(super) const REMOVE_LAPSED: &str =
    concat!("delete from {p}outbox_owner where not (", alive!(), ")");

pub(super) const IS_OWNER: &str =
    "select exists (select 1 from {p}outbox_owner where owner = ?1) as entered";

/// Runs inside `begin immediate`, which is the lock: there is one writer.
pub(super) const FREE: &str = "
select s.shard, s.epoch, s.owner is not null and s.owner <> ?2 as lapsed
from {p}outbox_shard s
where s.owner is null
   or s.owner = ?2 and s.shard not in (select value from json_each(?3))
   or not exists (select 1 from {p}outbox_owner o where o.owner = s.owner)
order by s.shard
limit +?1";

pub(super) const TAKE: &str =
    "update {p}outbox_shard set owner = ?1, epoch = epoch + 1 where shard = ?2";

pub(super) const RELEASE: &str =
    "update {p}outbox_shard set owner = null where owner = ?1 and shard = ?2 and epoch = ?3";

pub(super) const RELEASE_ALL: &str = "update {p}outbox_shard set owner = null where owner = ?1";

pub(super) const REMOVE_OWNER: &str = "delete from {p}outbox_owner where owner = ?1";

/// One look for rows that block the key; one for new rows of it at or below the floor, where there is
/// one. Both see the snapshot of the page.
pub(super) const READ: &str = concat!(
    "select ",
    row_columns!(
        concat!(
            "case
        when ordering_key is null then 0
        when ",
            is_blocked!(),
            " then 1
        when ?2 > 0 and exists (
            select 1 from {p}outbox_event o
            where o.shard = e.shard and o.ordering_key = e.ordering_key and o.seq <= +?2
              and o.status = 0) then 2
        else 0 end"
        ),
        "locked_until",
        "?4",
        "?5"
    ),
    "
from {p}outbox_event e
where shard = +?1 and seq > +?2 and status = 0
order by seq
limit +?3"
);

pub(super) const READ_KEY: &str = concat!(
    "select ",
    row_columns!(is_blocked!(), "locked_until", "?4", "?5"),
    "
from {p}outbox_event e
where shard = +?1 and ordering_key = +?2 and status = 0
order by seq
limit +?3"
);

/// The newest new row of a shard.
pub(super) const NEWEST: &str =
    "select coalesce(max(seq), 0) from {p}outbox_event where shard = +?1 and status = 0";

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
            " and o.status = 0
        order by o.ordering_key, o.seq
        limit 1)
    union all
    select o.ordering_key, o.seq
    from head
    cross join {p}outbox_event o on o.seq = (
        select n.seq
        from {p}outbox_event n
        where n.shard = +?1 and n.ordering_key > head.ordering_key and n.status = 0
        order by n.ordering_key, n.seq
        limit 1)
)"
        )
    };
}

pub(super) use heads;

/// Whether a row is blocked is asked once, and what is blocked comes without content: a sweep over
/// many keys that wait should cost little.
pub(super) const READ_HEADS: &str = concat!(
    "
with recursive ",
    heads!("?2"),
    ",
page (place, is_blocked) as materialized (
    select e.seq, ",
    is_blocked!(),
    "
    from head
    cross join {p}outbox_event e on e.seq = head.seq
    limit +?3
)
select ",
    row_columns!("page.is_blocked", "locked_until", "iif(page.is_blocked, -1, ?4)", "?5"),
    "
from page
cross join {p}outbox_event e on e.seq = page.place"
);

/// By the index named, since the planner would go through the rows with a key, too.
pub(super) const READ_KEYLESS: &str = concat!(
    "select ",
    row_columns!("0", "locked_until", "?4", "?5"),
    "
from {p}outbox_event indexed by {p}outbox_event_key
where shard = +?1 and ordering_key is null and seq > +?2 and seq <= +?6 and status = 0
order by seq
limit +?3"
);

/// Rows that a read left without content. The plus keeps the planner from the index of new rows.
pub(super) const READ_CONTENT: &str = concat!(
    "select ",
    row_columns!("0", "locked_until", "?2", "?3"),
    "
from {p}outbox_event
where seq in (select value from json_each(?1)) and +status = 0"
);

/// In how long the next row is due that waits.
pub(super) const NEXT_DUE: &str =
    "select min(available_at) - {now} from {p}outbox_event where shard = +?1 and status = 2";

/// Nothing is decided, and the token stays.
pub(super) const PROMOTE: &str = "
update {p}outbox_event
set status = 0
where seq in (
    select seq
    from {p}outbox_event
    where shard = +?1 and status = 2 and available_at <= {now}
    order by available_at, seq
    limit +?2)
returning seq, ordering_key";

/// The plus keeps the planner from the index of new rows.
pub(super) const POSTPONE: &str = "
update {p}outbox_event
set status = 2, locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1
where seq in (select value from json_each(?1))
  and shard = ?2 and lock_token = ?3 and +status = 0 and available_at > {now}";

/// Whether a shard is held. Runs inside `begin immediate`, so that it stays so until the end.
pub(super) const IS_HELD: &str =
    "select exists (select 1 from {p}outbox_shard where shard = ?1 and owner = ?2 and epoch = ?3)";

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
  and shard = ?2 and lock_token = ?3 and status in (0, 2)"
    };
}

/// There is one writer: a takeover comes before this statement and is seen, or after the commit.
macro_rules! fence {
    ($epoch:literal) => {
        concat!(
            "
  and exists (
        select 1 from {p}outbox_shard where shard = ?2 and owner = ?4 and epoch = ",
            $epoch,
            "
    )"
        )
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

pub(super) use {end, is_open, mark, open_rows, put_off};

pub(super) const SETTLE_DELETE: &str =
    concat!("delete from {p}outbox_event", open_rows!(), fence!("?5"));

pub(super) const SETTLE_END: &str = concat!(end!(), fence!("?9"));

pub(super) const SETTLE_PUT_OFF: &str = concat!(put_off!(), fence!("?9"));

/// Which rows a settle would find, for one that did not find them all.
pub(super) const SETTLE_FINDS: &str =
    concat!("select seq from {p}outbox_event", open_rows!(), fence!("?5"));

/// What failed leaves a line in the audit, told by the row as its verdict has left it.
pub(super) const AUDIT_FAILURES: &str = "
insert into {p}outbox_audit (event_id, action, attempts, error)
select
    event_id,
    case status when 2 then 'outbox-send-failed' else 'outbox-failed-permanent' end,
    attempts, last_error
from {p}outbox_event
where seq in (select value from json_each(?1))";
