-- Creates every table of the outbox and the inbox. New tables only: locks nothing that exists.
-- DDL commits as it goes here: every statement can be run again after a kill at any of them.
-- Times are UTC, from the database's clock: a datetime, for a timestamp ends in 2038. `{nopad}` is
-- the collation that compares bytes and counts trailing spaces: each server has its own name for it.

create table if not exists {p}outbox_event (
    seq bigint not null auto_increment primary key,
    event_id varchar(128) character set ascii collate ascii_bin not null default (uuid()),
    event_type varchar(128) not null,
    event_version int not null default 1,
    aggregate_type varchar(64) not null default '__GLOBAL__',
    aggregate_id varchar(128),
    -- Null: ordered by the aggregate. Empty: ordered by nothing.
    partition_key varchar(256),
    ordering_key varchar(256) generated always as (
        case
            when char_length(partition_key) > 0 then partition_key
            when partition_key is null and char_length(aggregate_id) > 0
                then concat(aggregate_type, '/', aggregate_id)
        end
    ) stored,
    shard smallint generated always as (
        crc32(case
            when char_length(partition_key) > 0 then partition_key
            when partition_key is null and char_length(aggregate_id) > 0
                then concat(aggregate_type, '/', aggregate_id)
            else event_id
        end) & 63
    ) stored,
    tenant_id varchar(64),
    -- Text, not json: it comes out as it went in, and MariaDB's json refuses what others take.
    payload longtext,
    payload_bytes longblob,
    content_type varchar(128),
    headers longtext,
    attempts int not null default 0,
    crashes int not null default 0,
    available_at datetime(6) not null default (utc_timestamp(6)),
    -- Below the column that its default reads, as MySQL wants it.
    status smallint not null default (case when available_at > utc_timestamp(6) then 2 else 0 end),
    occurred_at datetime(6) not null default (utc_timestamp(6)),
    created_at datetime(6) not null default (utc_timestamp(6)),
    done_at datetime(6),
    settled_by varchar(256),
    last_error varchar(4000),
    locked_by varchar(36) character set ascii collate ascii_bin,
    locked_until datetime(6),
    lock_token int not null default 0,
    -- There are no partial indexes. These three are null where a row needs no place among those of
    -- its shard, of its time, or of its key.
    pending_shard smallint generated always as (case when status in (0, 2) then shard end) stored,
    moment datetime(6) generated always as
        (case when status = 2 then available_at when status in (1, 3, 4) then done_at end) stored,
    pending_key varchar(256) generated always as
        (case when status in (0, 2, 4) then ordering_key end) stored,
    unique key {p}outbox_event_id (event_id),
    -- New rows by shard and `seq`, waiting rows by shard and due time, final and held ones by the
    -- time they became so. `available_at` stands behind `seq` for gauges, which need no row then.
    key {p}outbox_event_ready (status, pending_shard, moment, seq, available_at),
    -- From the head of one key to the head of the next; new rows without a key stand together.
    key {p}outbox_event_key (status, shard, pending_key, seq),
    constraint {p}outbox_event_has_type check (char_length(event_type) > 0),
    constraint {p}outbox_event_has_version check (event_version > 0),
    constraint {p}outbox_event_has_aggregate check (char_length(aggregate_type) > 0),
    constraint {p}outbox_event_has_status check (status between 0 and 4),
    constraint {p}outbox_event_one_payload check ((payload is null) <> (payload_bytes is null)),
    constraint {p}outbox_event_final_has_time check (status in (0, 2) or done_at is not null)
) engine = innodb row_format = dynamic character set utf8mb4 collate {nopad};

create table if not exists {p}outbox_owner (
    owner varchar(36) character set ascii collate ascii_bin not null primary key,
    lease_until datetime(6) not null,
    -- Microseconds. A lease that ends much later was written by a clock that was ahead.
    lease_length bigint not null,
    wants smallint not null
) engine = innodb character set utf8mb4 collate {nopad};

create table if not exists {p}outbox_shard (
    shard smallint not null primary key,
    owner varchar(36) character set ascii collate ascii_bin,
    epoch bigint not null default 0
) engine = innodb character set utf8mb4 collate {nopad};
insert ignore into {p}outbox_shard (shard)
with recursive shards (shard) as (select 0 union all select shard + 1 from shards where shard < 63)
select shard from shards;

-- A writer without a lock of its own takes one of these: the first byte of its key's SHA-256.
create table if not exists {p}outbox_key (
    slot smallint not null primary key
) engine = innodb character set utf8mb4 collate {nopad};
insert ignore into {p}outbox_key (slot)
with recursive slots (slot) as (select 0 union all select slot + 1 from slots where slot < 255)
select slot from slots;

create table if not exists {p}outbox_setting (
    id smallint not null primary key,
    claim varchar(16) not null,
    shards smallint not null,
    ordered varchar(16) not null,
    -- How far `seq` had come when it was last looked at: a counter behind it was set back.
    newest_seq bigint not null default 0,
    constraint {p}outbox_setting_is_one check (id = 1)
) engine = innodb character set utf8mb4 collate {nopad};
insert ignore into {p}outbox_setting (id, claim, shards, ordered) values (1, 'shards', 64, 'key');

create table if not exists {p}outbox_audit (
    id bigint not null auto_increment primary key,
    event_id varchar(128) character set ascii collate ascii_bin not null,
    action varchar(64) not null,
    attempts int not null,
    error varchar(4000),
    extra longtext,
    at datetime(6) not null default (utc_timestamp(6)),
    key {p}outbox_audit_event (event_id, id),
    key {p}outbox_audit_at (at)
) engine = innodb row_format = dynamic character set utf8mb4 collate {nopad};

create table if not exists {p}inbox_processed (
    consumer_name varchar(256) not null,
    source varchar(128) not null,
    event_id varchar(255) not null,
    tenant_id varchar(64),
    payload_hash varbinary(64) not null,
    processed_at datetime(6) not null default (utc_timestamp(6)),
    primary key (consumer_name, source, event_id),
    key {p}inbox_processed_at (processed_at)
) engine = innodb row_format = dynamic character set utf8mb4 collate {nopad};

-- What was given up, for people and for tools that read SQL.
create or replace sql security invoker view {p}outbox_dead_letter as
select
    seq as id, tenant_id, event_id, event_type as event_name, event_version, aggregate_type,
    aggregate_id, ordering_key as partition_key, payload, payload_bytes, status,
    attempts as retry_count, last_error, occurred_at, done_at as dead_at,
    settled_by as processor_name, cast(null as char(256)) as consumer_name, created_at
from {p}outbox_event
where status in (3, 4);

-- For writers in other languages: an event in the caller's transaction with one call, as in
-- call outbox_emit('order.placed', '{"total": 7}', 'order', '7', null, null, null). A null
-- aggregate type means none; what it leaves out has its default. More is in a plain insert.
drop procedure if exists {p}outbox_emit;
create procedure {p}outbox_emit(
    in event_type varchar(128) character set utf8mb4,
    in payload longtext character set utf8mb4,
    in aggregate_type varchar(64) character set utf8mb4,
    in aggregate_id varchar(128) character set utf8mb4,
    in partition_key varchar(256) character set utf8mb4,
    in tenant_id varchar(64) character set utf8mb4,
    in headers longtext character set utf8mb4
)
sql security invoker
insert into {p}outbox_event (
    event_type, payload, aggregate_type, aggregate_id, partition_key, tenant_id, headers)
values (
    event_type, payload, coalesce(aggregate_type, '__GLOBAL__'), aggregate_id, partition_key,
    tenant_id, headers);
