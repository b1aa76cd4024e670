//! Statements of row claims.

use super::{audit, event_columns, mark, pending_columns};

/// The lateral keeps the limit from locking more than it gives: rows are locked one by one until
/// there are enough, and `skip locked` lets claims pass each other. Whether a row is its key's
/// head is asked row by row, so that the plan cannot turn it into a join over all that waits.
pub(in super::super) const CLAIM: &str = concat!(
    "
with due as materialized (
    select e.ctid as place
    from unnest($2::smallint[]) as want (shard)
    cross join lateral (
        select e.ctid
        from {p}outbox_event e
        where e.shard = want.shard and e.status in (0, 2)
          and e.available_at <= clock_timestamp()
          and (e.locked_until is null or e.locked_until < clock_timestamp())
          and (not $5 or e.ordering_key is null or not exists (
                select 1 from {p}outbox_event o
                where o.ordering_key = e.ordering_key and o.seq < e.seq
                  and o.status in (0, 2, 4)))
        order by e.seq
        limit (select $3::bigint)
        for update skip locked
    ) e
    limit (select $3::bigint)
), e as (
    update {p}outbox_event e
    set locked_by = $1,
        locked_until = clock_timestamp() + $4 * interval '1 microsecond',
        lock_token = e.lock_token % 2147483647 + 1
    where e.ctid = any(array(select place from due)) and e.status in (0, 2)
    returning e.*
)
select ",
    pending_columns!(),
    "false as behind, ",
    event_columns!(),
    "
from e"
);

/// Rows that are the owner's under their tokens; every claim moves the token, so that these two
/// are the whole fence. A row that someone keeps locked is not waited for long: the first
/// condition is met once, before any row is locked.
macro_rules! leased {
    () => {
        "
where (select set_config('lock_timeout', '3s', true)) is not null
  and e.shard = v.shard and e.seq = v.seq and e.lock_token = v.token
  and e.locked_by = $1 and e.status in (0, 2)"
    };
}

pub(in super::super) const RENEW_ROWS: &str = concat!(
    "
update {p}outbox_event e
set locked_until = clock_timestamp() + $5 * interval '1 microsecond'
from unnest($2::smallint[], $3::bigint[], $4::integer[]) as v (shard, seq, token)",
    leased!(),
    "
returning e.seq"
);

pub(in super::super) const RELEASE_ROWS: &str = concat!(
    "
update {p}outbox_event e
set locked_by = null, locked_until = null, lock_token = e.lock_token % 2147483647 + 1
from unnest($2::smallint[], $3::bigint[], $4::integer[]) as v (shard, seq, token)",
    leased!()
);

pub(in super::super) const SETTLE_ROWS_DELETE: &str = concat!(
    "
delete from {p}outbox_event e
using unnest($2::smallint[], $3::bigint[], $4::integer[]) as v (shard, seq, token)",
    leased!(),
    "
returning e.seq"
);

pub(in super::super) const SETTLE_ROWS_MARK: &str = concat!(
    "with settled as (",
    mark!(),
    "
    from unnest(
            $2::smallint[], $3::bigint[], $4::integer[], $5::smallint[], $6::integer[],
            $7::bigint[], $8::text[], $9::text[]
        ) as v (shard, seq, token, status, tried, delay, error, route)",
    leased!(),
    "
    returning e.seq, e.event_id, e.status, e.attempts, v.tried, v.error
), ",
    audit!(),
    "
select seq from settled"
);
