//! Statements about the tables and their settings.

/// A lock's name has 64 characters at most, a database's alone may have as many.
pub(in super::super) const LOCK_MIGRATION: &str =
    "select get_lock(concat('pillarbox:', left(sha2(concat(database(), ':', ?), 256), 40)), 60)";

pub(in super::super) const HAS_VERSIONS: &str = "
select exists (
    select 1 from information_schema.tables
    where table_schema = database() and table_name = '{p}outbox_migration')";

pub(in super::super) const CREATE_VERSIONS: &str = "
create table if not exists {p}outbox_migration (
    version int not null primary key,
    applied_at datetime(6) not null default (utc_timestamp(6))
) engine = innodb";

pub(in super::super) const NOTE_VERSION: &str =
    "insert into {p}outbox_migration (version) values (?)";

/// Where rows have greater numbers, the server goes on after them.
pub(in super::super) const SET_SEQ: &str = "alter table {p}outbox_event auto_increment = {next}";

/// The newest migration laid down.
pub(in super::super) const VERSION: &str =
    "select coalesce(max(version), 0) as version from {p}outbox_migration";

/// MariaDB 12 says `OFF` where all others say 0. At READ COMMITTED the server refuses every write
/// where it would have to log statements.
pub(in super::super) const CONFIG: &str = "
select shards, claim, ordered, newest_seq,
    cast(@@global.read_only as char) not in ('0', 'OFF')
        or cast(@@global.innodb_read_only as char) not in ('0', 'OFF') as replica,
    @@global.log_bin = 1 and @@session.binlog_format = 'STATEMENT' as logs_statements
from {p}outbox_setting where id = 1";

/// How far the database has counted. The statistics are not kept: see [`super::SESSION`].
pub(in super::super) const LAST_SEQ: &str = "
select cast(coalesce(auto_increment, 1) as signed) - 1
from information_schema.tables
where table_schema = database() and table_name = '{p}outbox_event'";

/// The newest row. What was rolled back after it is not marked: a replica has never heard of that,
/// and may give it out again when it is made the primary.
pub(in super::super) const NEWEST_SEQ: &str = "select coalesce(max(seq), 0) from {p}outbox_event";

pub(in super::super) const MARK_SEQ: &str =
    "update {p}outbox_setting set newest_seq = ? where id = 1 and newest_seq < ?";

pub(in super::super) const CONFIGURE: &str =
    "update {p}outbox_setting set claim = ?, ordered = ? where id = 1";

pub(in super::super) const COUNT_OWNERS: &str = "select count(*) from {p}outbox_owner";
