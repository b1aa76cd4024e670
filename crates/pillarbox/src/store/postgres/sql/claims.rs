//! Statements of leases on rows.

use super::{audit, blocked, event_columns, heads, mark, pending_columns, under_token};

/// When new rows can be had; one whose time has not come, so that it is postponed.
macro_rules! unleased {
    () => {
        "(e.locked_until is null or e.locked_until < clock_timestamp())"
    };
}

/// What is done with the rows that were found and locked; the leases that they had are told, as if
/// these had run out long ago. The status is said in a way that keeps a
/// planner, if it takes the table for empty, from walking a whole index of what is new.
macro_rules! lease {
    () => {
        concat!(
            ")
update {p}outbox_event e
set locked_by = $1,
    locked_until = clock_timestamp() + $4 * interval '1 microsecond',
    lock_token = e.lock_token % 2147483647 + 1
where e.ctid = any(array(select place from due)) and e.status < {done}
returning ",
            pending_columns!(
                "case when e.seq = any(array(select seq from due where is_lapsed))
        then '-infinity'::timestamptz end"
            ),
            "0 as before, ",
            event_columns!(about "$5", "$6"),
        )
    };
}

/// The lateral keeps the limit from locking more than it gives: rows are locked one by one until
/// there are enough, and `skip locked` lets claims pass each other.
pub(in super::super) const CLAIM: &str = concat!(
    "
with due as materialized (
    select e.place, e.seq, e.is_lapsed
    from unnest($2::smallint[]) as want (shard)
    cross join lateral (
        select e.ctid as place, e.seq,
            e.locked_until is not null or e.crashes > 0 as is_lapsed
        from {p}outbox_event e
        where e.shard = want.shard and e.status = {new} and ",
    unleased!(),
    "
        order by e.seq
        limit (select $3::bigint)
        for update skip locked
    ) e
    limit (select $3::bigint)
",
    lease!()
);

/// A head is not to be had while an older row of its key waits for its time or for an operator.
/// The rows without a key come behind all keys.
pub(in super::super) const CLAIM_HEADS: &str = concat!(
    "
with due as materialized (
    select e.place, e.seq, e.is_lapsed
    from unnest($2::smallint[]) with ordinality as want (shard, nth)
    cross join lateral (
        ",
    heads!("want.shard", "case want.nth when 1 then $7 else '' end"),
    "
        select e.place, e.seq, e.is_lapsed
        from head
        cross join lateral (
            select e.ctid as place, e.seq,
            e.locked_until is not null or e.crashes > 0 as is_lapsed
            from {p}outbox_event e
            where e.shard = want.shard and e.seq = head.seq and e.status = {new} and ",
    unleased!(),
    "
              and (",
    blocked!(),
    ") is not true
            for update skip locked
        ) e
        union all
        select e.place, e.seq, e.is_lapsed
        from (
            select e.ctid as place, e.seq,
            e.locked_until is not null or e.crashes > 0 as is_lapsed
            from {p}outbox_event e
            where e.shard = want.shard and e.ordering_key is null and e.status + 0 = {new} and ",
    unleased!(),
    "
            order by e.ordering_key, e.seq
            limit (select $3::bigint)
            for update skip locked
        ) e
    ) e
    limit (select $3::bigint)
",
    lease!()
);

/// Rows that a relay could deliver now, of the oldest new ones of each shard; and those that are
/// about to be promoted.
pub(in super::super) const COUNT_DUE: &str = concat!(
    "
select least($2, (
    select count(*)
    from (
        select e.*
        from unnest($1::smallint[]) as want (shard)
        cross join lateral (
            select e.shard, e.ordering_key, e.seq, e.available_at, e.locked_until
            from {p}outbox_event e
            where e.shard = want.shard and e.status = {new}
            order by e.seq
            limit (select $2::bigint)
        ) e
        limit (select $2::bigint)
    ) e
    where e.available_at <= clock_timestamp() and ",
    unleased!(),
    " and (",
    blocked!(),
    ") is not true
) + (
    select count(*)
    from (
        select 1
        from unnest($1::smallint[]) as want (shard)
        cross join lateral (
            select e.shard, e.ordering_key, e.seq
            from {p}outbox_event e
            where e.shard = want.shard and e.status = {waiting}
              and e.available_at <= (select clock_timestamp())
            order by e.available_at, e.seq
            limit (select $2::bigint)
        ) e
        where (",
    blocked!(),
    ") is not true
        limit (select $2::bigint)
    ) due
))"
);

/// Rows that are the owner's under their tokens; every claim moves the token, so that these two
/// are the whole fence. A row that someone keeps locked is not waited for long: the first
/// condition is met once, before any row is locked.
macro_rules! leased {
    () => {
        concat!(
            "(select set_config('lock_timeout', '3s', true)) is not null and e.locked_by = $1
    and ",
            under_token!("$2", "$3", "$4", "")
        )
    };
}

pub(in super::super) const RENEW_ROWS: &str = concat!(
    "
update {p}outbox_event e
set locked_until = clock_timestamp() + $5 * interval '1 microsecond'
where e.locked_by = $1 and ",
    under_token!(unlocked "$2", "$3", "$4"),
    "
returning e.seq"
);

pub(in super::super) const RELEASE_ROWS: &str = concat!(
    "
update {p}outbox_event e
set locked_by = null, locked_until = null, lock_token = e.lock_token % 2147483647 + 1
where ",
    leased!()
);

/// What is taken by a write, and by its token: the verdict of the one whose lease ran out comes too
/// late from then on.
pub(in super::super) const RECLAIM: &str = concat!(
    "
update {p}outbox_event e
set locked_by = null, locked_until = null, lock_token = e.lock_token % 2147483647 + 1
where e.locked_until <= clock_timestamp() and ",
    under_token!(unlocked "$1", "$2", "$3")
);

/// Another program may have written any number: the count starts at zero and stays in its range.
pub(in super::super) const RECORD_STARTS: &str = concat!(
    "
update {p}outbox_event e
set crashes = least(greatest(e.crashes, 0), 2147483646) + 1
where e.crashes < $4 and ",
    under_token!(unlocked "$1", "$2", "$3"),
    "
returning e.seq, e.crashes"
);

/// Which rows were settled is said only where it is not all of them; no shard is locked for it.
macro_rules! settled {
    () => {
        "
select
    array[]::smallint[] as locked,
    case when (select count(*) from settled) < cardinality($3)
        then array(select seq from settled) end as settled"
    };
}

pub(in super::super) const SETTLE_ROWS_DELETE: &str = concat!(
    "
with settled as (
    delete from {p}outbox_event e
    where ",
    leased!(),
    "
    returning e.seq
)",
    settled!()
);

pub(in super::super) const SETTLE_ROWS_MARK: &str = concat!(
    "
with settled as (",
    mark!(),
    leased!(),
    audit!(),
    settled!()
);
