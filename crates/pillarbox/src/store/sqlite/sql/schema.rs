//! Statements about the tables and their settings.

pub(in super::super) const HAS_VERSIONS: &str = "
select exists (
    select 1 from sqlite_schema where type = 'table' and name = '{p}outbox_migration')";

pub(in super::super) const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at integer not null default ({now})
)";

pub(in super::super) const NOTE_VERSION: &str =
    "insert into {p}outbox_migration (version) values (?1)";

pub(in super::super) const SET_SEQ: &str = "delete from sqlite_sequence where name = '{p}outbox_event'; \
    insert into sqlite_sequence (name, seq) values ('{p}outbox_event', {newest})";

/// The newest migration laid down.
pub(in super::super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

pub(in super::super) const CONFIG: &str =
    "select shards, claim, ordered, newest_seq from {p}outbox_setting where id = 1";

/// How far the database has counted; it never gives a smaller number than that of a row.
pub(in super::super) const LAST_SEQ: &str = "
select max(
    coalesce((select seq from sqlite_sequence where name = '{p}outbox_event'), 0),
    coalesce((select max(seq) from {p}outbox_event), 0))";

pub(in super::super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = ?1 where id = 1 and newest_seq < ?1";

pub(in super::super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = ?1, ordered = ?2 where id = 1";

pub(in super::super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";
