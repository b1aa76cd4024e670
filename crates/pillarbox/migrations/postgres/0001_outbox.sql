-- Creates every table of the outbox and the inbox. New tables only: locks nothing that exists.

create table {p}outbox_event (
    event_id varchar(128) collate "C" primary key default gen_random_uuid()::text,
    -- Never cached: a cached sequence would hand a later writer a smaller number.
    seq bigint not null generated always as identity (cache 1),
    event_type varchar(128) not null,
    event_version integer not null default 1,
    aggregate_type varchar(64) not null default '__GLOBAL__',
    aggregate_id varchar(128),
    -- Null: ordered by the aggregate. Empty: ordered by nothing.
    partition_key varchar(256),
    -- These two follow from the columns above. The library writes them; whoever leaves the shard out
    -- has both filled in by a trigger. "C" everywhere near a key: equal means equal bytes.
    ordering_key varchar(256) collate "C",
    shard smallint not null,
    tenant_id varchar(64),
    -- json, not jsonb: the text comes out as it went in, with \u0000, duplicate keys and all.
    payload json,
    payload_bytes bytea,
    content_type varchar(128),
    headers json,
    -- 0 new, 1 done, 2 waiting for its time, 3 dead, 4 held.
    status smallint not null default 0,
    attempts integer not null default 0,
    crashes integer not null default 0,
    available_at timestamptz not null default clock_timestamp(),
    occurred_at timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    done_at timestamptz,
    settled_by varchar(256),
    last_error varchar(4000),
    locked_by varchar(36) collate "C",
    locked_until timestamptz,
    lock_token integer not null default 0
);

-- What the library checks and computes for its own rows, for those of everybody else. The shard is
-- that of the key, or of the id where there is none. What is delayed waits. No relay would ever read
-- a row with another status or shard, and a row that is final without a time of it would be listed,
-- counted and purged by nobody.
create function {p}outbox_event_complete() returns trigger language plpgsql as $$
declare
    wrong text := case
        when new.status not between 0 and 4 then 'status is not between 0 and 4'
        when new.shard not between 0 and 63 then 'shard is not between 0 and 63'
        when new.shard is not null then null
        when new.event_type = '' then 'event_type is empty'
        when new.event_version < 1 then 'event_version is below 1'
        when new.aggregate_type = '' then 'aggregate_type is empty'
        when (new.payload is null) = (new.payload_bytes is null)
            then 'one of payload and payload_bytes has to be given, and not both'
    end;
begin
    if wrong is not null then
        raise exception 'this is no event: %', wrong using errcode = 'check_violation';
    end if;
    if new.shard is null then
        new.ordering_key := nullif(coalesce(
            new.partition_key, new.aggregate_type || '/' || nullif(new.aggregate_id, '')), '');
        new.shard := get_byte(
            sha256(convert_to(coalesce(new.ordering_key, new.event_id), 'UTF8')), 0) & 63;
        if new.status = 0 and new.available_at > clock_timestamp() then
            new.status := 2;
        end if;
    end if;
    if new.status in (1, 3, 4) and new.done_at is null then
        new.done_at := clock_timestamp();
    end if;
    return new;
end $$;
-- In place of CHECK constraints. The server reads the text of a constraint, and of the condition of a
-- trigger, anew for every statement, which costs as much as an index: an insert has one of them.
create trigger {p}outbox_event_insert before insert on {p}outbox_event
    for each row when ((new.shard between 0 and 63 and new.status = 0) is not true)
    execute function {p}outbox_event_complete();
create trigger {p}outbox_event_update before update on {p}outbox_event
    for each row when ((new.shard between 0 and 63 and (
        new.status in (0, 2) or new.status in (1, 3, 4) and new.done_at is not null)) is not true)
    execute function {p}outbox_event_complete();

-- New rows only, so that the cost of a read grows neither with the rows that are kept nor with those
-- that wait for their time.
create index {p}outbox_event_ready on {p}outbox_event (shard, seq) where status = 0;
-- From the head of one key to the head of the next; rows without a key stand together. The sum
-- tells the two apart: a planner that knows nothing of the table, or takes it for empty, would look
-- for rows in the wrong one, so a statement says which of them it means.
create index {p}outbox_event_key on {p}outbox_event (shard, ordering_key, seq) where status + 0 = 0;
-- An emit touches none of the others, unless it is delayed. What waits, by the time it waits for.
create index {p}outbox_event_due on {p}outbox_event (shard, available_at, seq) where status = 2;
-- What the later rows of a key wait for. Nothing waits for a row without a key.
create index {p}outbox_event_blocked on {p}outbox_event (shard, ordering_key, seq)
    where status in (2, 4) and ordering_key is not null;
-- What is done is purged by age. What was given up is listed by the time of it; with the status,
-- it is counted without a look at the rows.
create index {p}outbox_event_done on {p}outbox_event (done_at) where status = 1;
create index {p}outbox_event_dead on {p}outbox_event (done_at, seq, status) where status in (3, 4);
-- An operator names an event by its `seq`. The sum is there for the same reason as above.
create index {p}outbox_event_dead_seq on {p}outbox_event (seq) where status + 0 in (3, 4);

create table {p}outbox_owner (
    owner varchar(36) collate "C" primary key,
    lease_until timestamptz not null,
    -- Microseconds. A lease that ends much later was written by a clock that was ahead.
    lease_length bigint not null,
    wants smallint not null
);

create table {p}outbox_shard (
    shard smallint primary key,
    owner varchar(36) collate "C",
    epoch bigint not null default 0
);
insert into {p}outbox_shard (shard) select generate_series(0, 63);

create table {p}outbox_setting (
    id smallint primary key check (id = 1),
    claim varchar(16) not null,
    shards smallint not null,
    ordered varchar(16) not null,
    -- How far `seq` had come when it was last looked at: a sequence behind it was set back.
    newest_seq bigint not null default 0
);
insert into {p}outbox_setting (id, claim, shards, ordered) values (1, 'shards', 64, 'key');

create table {p}outbox_audit (
    id bigint primary key generated always as identity,
    event_id varchar(128) collate "C" not null,
    action varchar(64) not null,
    attempts integer not null,
    error varchar(4000),
    extra json,
    at timestamptz not null default clock_timestamp()
);
create index {p}outbox_audit_event on {p}outbox_audit (event_id, id);
create index {p}outbox_audit_at on {p}outbox_audit (at);

create table {p}inbox_processed (
    consumer_name varchar(256) collate "C" not null,
    source varchar(128) collate "C" not null,
    event_id varchar(255) collate "C" not null,
    tenant_id varchar(64),
    payload_hash bytea not null,
    processed_at timestamptz not null default clock_timestamp(),
    primary key (consumer_name, source, event_id)
);
create index {p}inbox_processed_at on {p}inbox_processed (processed_at);

-- What was given up, for people and for tools that read SQL.
create view {p}outbox_dead_letter as
select
    seq as id, tenant_id, event_id, event_type as event_name, event_version, aggregate_type,
    aggregate_id, ordering_key as partition_key, payload, payload_bytes, status,
    attempts as retry_count, last_error, occurred_at, done_at as dead_at,
    settled_by as processor_name, null::varchar(256) as consumer_name, created_at
from {p}outbox_event
where status in (3, 4);

-- For writers in other languages: an event in the caller's transaction with one call.
create function {p}outbox_emit(
    event_type text,
    payload json,
    aggregate_type text default '__GLOBAL__',
    aggregate_id text default null,
    partition_key text default null,
    tenant_id text default null,
    headers json default null,
    event_version integer default 1,
    deliver_after interval default null,
    event_id text default null
) returns text
language sql
as $$
    insert into {p}outbox_event (
        event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key,
        tenant_id, payload, headers, available_at)
    values (
        coalesce($10, gen_random_uuid()::text), $1, $8, $3, $4, $5,
        $6, $2, $7, clock_timestamp() + coalesce($9, interval '0'))
    returning event_id
$$;
