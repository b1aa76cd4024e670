//! Forbidden changes of event rows, recorded by triggers in the database.
//!
//! Only violations are recorded, so that the table stays small in a long run.

use pillarbox::Result;

use crate::bank::Bank;

const CREATE: &str =
    "create table audit (event_id varchar(36) not null, what varchar(64) not null)";

/// The status changes and the token does not rise, other than by a promotion; something is done and then is not; what is
/// deleted is not done.
const POSTGRES: &str = "
create function audit_note() returns trigger language plpgsql as $$
begin
    insert into audit (event_id, what) values (old.event_id, tg_argv[0]);
    return null;
end $$;
create trigger audit_token after update on outbox_event for each row
    when (new.status <> old.status and new.lock_token <= old.lock_token
        and not (old.status = 2 and new.status = 0))
    execute function audit_note('changed without a new token');
create trigger audit_undone after update on outbox_event for each row
    when (old.status = 1 and new.status <> 1)
    execute function audit_note('was done and is not');
create trigger audit_deleted after delete on outbox_event for each row
    when (old.status <> 1)
    execute function audit_note('deleted before it was done');";

const MYSQL: [&str; 2] = [
    "create trigger audit_changed after update on outbox_event for each row
insert into audit (event_id, what)
select old.event_id, 'changed without a new token' from dual
where new.status <> old.status and new.lock_token <= old.lock_token
    and not (old.status = 2 and new.status = 0)
union all
select old.event_id, 'was done and is not' from dual where old.status = 1 and new.status <> 1",
    "create trigger audit_deleted after delete on outbox_event for each row
insert into audit (event_id, what)
select old.event_id, 'deleted before it was done' from dual where old.status <> 1",
];

const SQLITE: &str = "
create trigger audit_token after update on outbox_event
when new.status <> old.status and new.lock_token <= old.lock_token
    and not (old.status = 2 and new.status = 0)
begin insert into audit values (old.event_id, 'changed without a new token'); end;
create trigger audit_undone after update on outbox_event
when old.status = 1 and new.status <> 1
begin insert into audit values (old.event_id, 'was done and is not'); end;
create trigger audit_deleted after delete on outbox_event
when old.status <> 1
begin insert into audit values (old.event_id, 'deleted before it was done'); end;";

/// Creates the table and the triggers.
///
/// # Errors
/// When a statement fails.
pub async fn install(bank: &Bank) -> Result<()> {
    match bank {
        Bank::Postgres(pool) => {
            sqlx::raw_sql(CREATE).execute(pool).await?;
            sqlx::raw_sql(POSTGRES).execute(pool).await?;
        }
        Bank::Mysql(pool) => {
            sqlx::raw_sql(CREATE).execute(pool).await?;
            for trigger in MYSQL {
                sqlx::raw_sql(trigger).execute(pool).await?;
            }
        }
        Bank::Sqlite(pool) => {
            sqlx::raw_sql(CREATE).execute(pool).await?;
            sqlx::raw_sql(SQLITE).execute(pool).await?;
        }
    }
    Ok(())
}

/// The violations so far: event ids, and what is wrong with them.
///
/// # Errors
/// When a statement fails.
pub async fn violations(bank: &Bank) -> Result<Vec<(String, String)>> {
    let select = "select event_id, what from audit";
    Ok(match bank {
        Bank::Postgres(pool) => sqlx::query_as(select).fetch_all(pool).await?,
        Bank::Mysql(pool) => sqlx::query_as(select).fetch_all(pool).await?,
        Bank::Sqlite(pool) => sqlx::query_as(select).fetch_all(pool).await?,
    })
}
