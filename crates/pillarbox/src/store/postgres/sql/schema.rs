//! Statements about the tables and their settings.

pub(in super::super) const CURRENT_SCHEMA: &str = "select current_schema()::text";

pub(in super::super) const LOCK_MIGRATION: &str =
    "select pg_advisory_xact_lock(hashtextextended($1, 0))";

/// In the schema that the tables would be created in, whatever else is in the search path.
pub(in super::super) const HAS_VERSIONS: &str = "
select to_regclass(quote_ident(current_schema()) || '.{p}outbox_migration') is not null";

pub(in super::super) const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version integer primary key,
    applied_at timestamptz not null default clock_timestamp()
)";

pub(in super::super) const NOTE_VERSION: &str =
    "insert into {p}outbox_migration (version) values ($1)";

/// Sets the sequence to what was marked, or to the newest row.
pub(in super::super) const SET_SEQ: &str = "select setval('{p}outbox_event_seq_seq', \
    greatest({newest}, (select max(seq) from {p}outbox_event)))";

/// The newest migration laid down.
pub(in super::super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

pub(in super::super) const CONFIG: &str = "
select shards, claim, ordered, newest_seq, pg_is_in_recovery() as replica
from {p}outbox_setting where id = 1";

/// A role needs a right to read the sequence, which it does not need to write events.
pub(in super::super) const CAN_READ_SEQ: &str = "
select coalesce(
    has_sequence_privilege(to_regclass('{p}outbox_event_seq_seq')::oid, 'select'), false)";

/// How far the database has counted.
pub(in super::super) const LAST_SEQ: &str = "
select case when is_called then last_value else last_value - 1 end
from {p}outbox_event_seq_seq";

pub(in super::super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = $1 where id = 1 and newest_seq < $1";

pub(in super::super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = $1, ordered = $2 where id = 1";

pub(in super::super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";
