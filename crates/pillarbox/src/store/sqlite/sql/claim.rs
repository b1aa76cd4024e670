//! Statements of row claims.

use super::{mark, open_rows, row_columns};

/// One shard's due rows; `status in (0, 2, 4)` stands there because the index has it, word for
/// word, and is not taken without it.
pub(in super::super) const CLAIM: &str = concat!(
    "
update {p}outbox_event
set locked_by = ?1, locked_until = {now} + ?4, lock_token = lock_token % 2147483647 + 1
where seq in (
        select e.seq
        from {p}outbox_event e
        where e.shard = +?2 and e.status in (0, 2, 4) and e.status <> 4
          and e.available_at <= {now}
          and (e.locked_until is null or e.locked_until < {now})
          and (not ?5 or e.ordering_key is null or not exists (
                select 1 from {p}outbox_event o
                where o.ordering_key = e.ordering_key and o.seq < e.seq
                  and o.status in (0, 2, 4)))
        order by e.seq
        limit +?3
    )
returning ",
    row_columns!("false")
);

/// Owner and token of the row are the whole fence: every claim moves the token.
macro_rules! leased_rows {
    () => {
        concat!(open_rows!(), " and locked_by = ?4")
    };
}

pub(in super::super) const RENEW_ROWS: &str = concat!(
    "update {p}outbox_event set locked_until = {now} + ?5",
    leased_rows!(),
    "
returning seq"
);

pub(in super::super) const RELEASE_ROWS: &str = concat!(
    "
update {p}outbox_event
set locked_by = null, locked_until = null, lock_token = lock_token % 2147483647 + 1",
    leased_rows!()
);

pub(in super::super) const SETTLE_ROWS_DELETE: &str =
    concat!("delete from {p}outbox_event", leased_rows!());

pub(in super::super) const SETTLE_ROWS_MARK: &str = concat!(mark!(), leased_rows!());

/// Which rows a settle would find, for one that did not find them all.
pub(in super::super) const SETTLE_ROWS_FINDS: &str =
    concat!("select seq from {p}outbox_event", leased_rows!());
