-- Creates every table of the outbox and the inbox. New tables only: locks nothing that exists.
-- Times are microseconds since 1970, from the database's clock. Strict: what another language
-- writes has the right type, or is refused where it can be seen.

create table {p}outbox_event (
    -- Autoincrement: without it a deleted number would be given out again.
    seq integer primary key autoincrement check (seq > 0),
    event_id text not null unique default (lower(hex(randomblob(16))))
        check (length(event_id) between 1 and 128),
    event_type text not null check (length(event_type) between 1 and 128),
    event_version integer not null default 1 check (event_version between 1 and 2147483647),
    aggregate_type text not null default '__GLOBAL__'
        check (length(aggregate_type) between 1 and 64),
    aggregate_id text check (length(aggregate_id) <= 128),
    -- Null: ordered by the aggregate. Empty: ordered by nothing.
    partition_key text check (length(partition_key) <= 256),
    ordering_key text generated always as (
        case
            when partition_key <> '' then partition_key
            when partition_key is null and aggregate_id <> '' then aggregate_type || '/' || aggregate_id
        end
    ) stored,
    -- One writer at a time is all that SQLite has: one shard serves it best.
    shard integer not null generated always as (0) stored,
    tenant_id text check (length(tenant_id) <= 64),
    content_type text check (length(content_type) <= 128),
    status integer not null default 0 check (status between 0 and 4),
    attempts integer not null default 0,
    crashes integer not null default 0,
    available_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    occurred_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    created_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    done_at integer,
    settled_by text,
    last_error text,
    locked_by text,
    locked_until integer,
    lock_token integer not null default 0,
    -- Last, because SQLite walks over a large value to reach what stands behind it.
    headers text,
    payload text,
    payload_bytes blob,
    check ((payload is null) <> (payload_bytes is null)),
    check (status in (0, 2) or done_at is not null),
    check (attempts between 0 and 2147483647 and lock_token between 0 and 2147483647),
    -- The years 1 to 9999, in microseconds.
    check (available_at between -62135596800000000 and 253402300799999999),
    check (occurred_at between -62135596800000000 and 253402300799999999)
) strict;

-- Each index ends with the rowid, which is `seq`. No condition lists three values: for that SQLite
-- fills a table with each row that is written, which takes longer than all the rest.
--
-- New rows only, so that the cost of a read grows neither with the rows that are kept nor with
-- those that wait.
create index {p}outbox_event_ready on {p}outbox_event (shard) where status = 0;
-- From the oldest row of one key to that of the next; rows without a key stand together.
create index {p}outbox_event_key on {p}outbox_event (shard, ordering_key) where status = 0;
-- An emit touches none of these, unless it is delayed: rows that wait by their time, and the rows
-- that block a key. What is done is purged by age, and what was given up is listed by the time of
-- it, and counted by its status.
create index {p}outbox_event_due on {p}outbox_event (shard, available_at) where status = 2;
create index {p}outbox_event_blocked on {p}outbox_event (shard, ordering_key)
    where status in (2, 4);
create index {p}outbox_event_done on {p}outbox_event (done_at) where status = 1;
create index {p}outbox_event_dead on {p}outbox_event (done_at, seq, status)
    where status in (3, 4);

create table {p}outbox_owner (
    owner text primary key,
    lease_until integer not null,
    -- A lease that ends much later than this was written by a clock that was ahead.
    lease_length integer not null,
    wants integer not null
) strict, without rowid;

create table {p}outbox_shard (
    shard integer primary key,
    owner text,
    epoch integer not null default 0
) strict;
insert into {p}outbox_shard (shard) values (0);

create table {p}outbox_setting (
    id integer primary key check (id = 1),
    claim text not null,
    shards integer not null,
    ordered text not null,
    -- How far `seq` had come when it was last looked at: a counter behind it was set back.
    newest_seq integer not null default 0
) strict;
insert into {p}outbox_setting (id, claim, shards, ordered) values (1, 'shards', 1, 'key');

create table {p}outbox_audit (
    id integer primary key autoincrement,
    event_id text not null,
    action text not null,
    attempts integer not null,
    error text,
    extra text,
    at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000)
) strict;
create index {p}outbox_audit_event on {p}outbox_audit (event_id, id);
create index {p}outbox_audit_at on {p}outbox_audit (at);

create table {p}inbox_processed (
    consumer_name text not null,
    source text not null,
    event_id text not null,
    tenant_id text,
    payload_hash blob not null,
    processed_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000),
    primary key (consumer_name, source, event_id)
) strict, without rowid;
create index {p}inbox_processed_at on {p}inbox_processed (processed_at);

-- What was given up, for people and for tools that read SQL.
create view {p}outbox_dead_letter as
select
    seq as id, tenant_id, event_id, event_type as event_name, event_version, aggregate_type,
    aggregate_id, ordering_key as partition_key, payload, payload_bytes, status,
    attempts as retry_count, last_error, occurred_at, done_at as dead_at,
    settled_by as processor_name, cast(null as text) as consumer_name, created_at
from {p}outbox_event
where status in (3, 4);
