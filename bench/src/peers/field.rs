//! Where peers run: each in a database of its own that is new in every round.

use std::{path::Path, time::Duration};

use serde::Deserialize;
use sqlx::{AssertSqlSafe, PgPool, postgres::PgPoolOptions};

use super::list::Peer;
use super::program::{Programs, Verb};
use crate::{
    Result,
    baseline::postgres::PostgresBench,
    cpu,
    measure::{Sample, since},
};

/// The server, and the programs to let loose on it.
pub(super) struct Field {
    programs: Programs,
    url: String,
    server: PgPool,
    name: String,
}

/// The answer to `fill`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Filled {
    /// A statement that gives it an event, with the payload as `$1`.
    pub(super) enqueue: Option<String>,
    /// A statement that counts what it was given.
    pub(super) enqueued: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Ready {
    ready: bool,
}

/// The answer to `drain`.
#[derive(Debug, Deserialize)]
struct Drained {
    /// From the first call of its handler to its last completion in the table.
    seconds: f64,
    /// Different events.
    handled: u32,
    duplicates: u32,
}

/// The answer to `listen`.
#[derive(Debug, Deserialize)]
struct Heard {
    heard: Vec<i64>,
}

impl Field {
    pub(super) async fn open(programs: Option<&Path>, url: &str) -> Result<Self> {
        let programs = Programs::load(programs)?;
        let server = PgPoolOptions::new().max_connections(1).connect(url).await?;
        let name = format!("pillarbox_peer_{}", std::process::id());
        Ok(Self { programs, url: at_database(url, &name), server, name })
    }

    pub(super) async fn close(&self) -> Result {
        self.run(&format!("drop database if exists {} with (force)", self.name)).await?;
        self.server.close().await;
        Ok(())
    }

    /// The peer's database with a table for the business, and connections to it.
    pub(super) async fn business(&self, connections: u32) -> Result<PgPool> {
        let pool = PgPoolOptions::new().max_connections(connections).min_connections(connections);
        let pool = pool.connect(&self.url).await?;
        let table = "create table business (id bigint primary key, total bigint not null)";
        sqlx::raw_sql(table).execute(&pool).await?;
        Ok(pool)
    }

    /// A new database with the peer's tables and this many events.
    pub(super) async fn fill(&self, peer: &Peer, count: u32) -> Result<Filled> {
        self.run(&format!("drop database if exists {} with (force)", self.name)).await?;
        self.run(&format!("create database {}", self.name)).await?;
        let mut program = self.programs.start(peer, Verb::Fill, &self.url, count)?;
        let filled = program.answer().await?;
        program.end().await?;
        let there = PgPoolOptions::new().max_connections(1).connect(&self.url).await?;
        sqlx::raw_sql("vacuum (analyze)").execute(&there).await?;
        there.close().await;
        Ok(filled)
    }

    /// Lets the peer drain what it was filled with; an event that is missing, or comes twice, is
    /// a failure.
    pub(super) async fn drain(
        &self,
        database: &PostgresBench,
        peer: &Peer,
        count: u32,
    ) -> Result<Sample> {
        let mut program = self.programs.start(peer, Verb::Drain, &self.url, count)?;
        if !program.answer::<Ready>().await?.ready {
            return Err("it was not ready".into());
        }
        let pid = program.pid();
        let own = || pid.and_then(|pid| cpu::of(&[pid]));
        let (used, before) = (database.used_by_all().await?, own());
        program.go().await?;
        let drained: Drained = program.answer().await?;
        let own_cpu = since(own(), before);
        let used = database.used_by_all().await?.since(used);
        program.end().await?;
        if drained.handled != count || drained.duplicates != 0 {
            let Drained { handled, duplicates, .. } = drained;
            return Err(format!("of {count} events {handled} came, {duplicates} twice").into());
        }
        Ok(Sample {
            count: count.into(),
            wall: Duration::try_from_secs_f64(drained.seconds)?,
            server_cpu: used.cpu,
            own_cpu,
            log_bytes: used.log_bytes,
            peak: None,
            rows: None,
        })
    }

    /// Lets the peer listen while `enqueue` gives it this many events, and returns when it heard each, in
    /// microseconds since 1970.
    pub(super) async fn listen(
        &self,
        peer: &Peer,
        count: u32,
        enqueue: impl Future<Output = Result>,
    ) -> Result<Vec<i64>> {
        let mut program = self.programs.start(peer, Verb::Listen, &self.url, count)?;
        if !program.answer::<Ready>().await?.ready {
            return Err("it was not ready".into());
        }
        enqueue.await?;
        let Heard { heard } = program.answer().await?;
        program.end().await?;
        if heard.len() != usize::try_from(count)? {
            return Err(format!("of {count} events {} came", heard.len()).into());
        }
        Ok(heard)
    }

    async fn run(&self, sql: &str) -> Result {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.server).await?;
        Ok(())
    }
}

/// The same server, another database.
fn at_database(url: &str, name: &str) -> String {
    let (address, options) = match url.split_once('?') {
        Some((address, options)) => (address, format!("?{options}")),
        None => (url, String::new()),
    };
    let server = address.rsplit_once('/').map_or(address, |(server, _)| server);
    format!("{server}/{name}{options}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_database_keeps_server_and_options() {
        let url = at_database("postgres://me@127.0.0.1:5432/test?sslmode=disable", "peer");

        assert_eq!(url, "postgres://me@127.0.0.1:5432/peer?sslmode=disable");
        assert_eq!(at_database("postgres://h/test", "peer"), "postgres://h/peer");
    }
}
