//! The deployment of one run: a database and a directory of its own, removed at the end.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use clap::ValueEnum;
use pillarbox::{MysqlStore, PostgresStore, SqliteStore, Store};
use sqlx::{AssertSqlSafe, ConnectOptions as _, mysql::MySqlConnectOptions};

use crate::{Result, bank::Bank, disk::Disk, pgbouncer::PgBouncer};

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Server {
    /// PostgreSQL at `PILLARBOX_POSTGRES_URL`.
    Postgres,
    /// MySQL or MariaDB at `PILLARBOX_MYSQL_URL`.
    Mysql,
    /// A file.
    Sqlite,
}

impl Server {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Postgres, Self::Mysql, Self::Sqlite];

    /// The word on the command line and in `PILLARBOX_REQUIRE`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    /// Where it is; `None` when nobody says, `Some("")` for a file.
    ///
    /// # Panics
    /// When it is missing and `PILLARBOX_REQUIRE` asks for it.
    pub fn base(self) -> Option<String> {
        let variable = match self {
            Self::Postgres => "PILLARBOX_POSTGRES_URL",
            Self::Mysql => "PILLARBOX_MYSQL_URL",
            Self::Sqlite => return Some(String::new()),
        };
        let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
        assert!(
            url.is_some() || !is_required(self.name()),
            "PILLARBOX_REQUIRE asks for {}: set {variable}",
            self.name()
        );
        if url.is_none() {
            eprintln!("skipped: {variable} is not set");
        }
        url
    }
}

/// Whether `PILLARBOX_REQUIRE` says that a run must not do without this.
pub fn is_required(name: &str) -> bool {
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    required.split(',').any(|required| required == name)
}

/// A database of its own and a directory.
#[derive(Debug)]
pub struct Deployment {
    /// Which database.
    pub server: Server,
    /// What relay processes connect to.
    pub url: String,
    /// The relay's view of it.
    pub store: Arc<dyn Store>,
    /// The business's view of it.
    pub bank: Bank,
    /// For logs.
    pub dir: PathBuf,
    /// Where to drop what was created, and how.
    undo: Option<(Bank, Vec<String>)>,
    /// What its tables are on, if that can be filled.
    pub disk: Option<Disk>,
    /// What stands in front of the database.
    pgbouncer: Option<PgBouncer>,
}

impl Deployment {
    /// Creates a migrated database with this many accounts.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn open(server: Server, base: &str, name: &str, accounts: i64) -> Result<Self> {
        let deployment = Self::bare(server, base, name).await?;
        deployment.store.migrate().await?;
        deployment.bank.prepare(accounts).await?;
        Ok(deployment)
    }

    /// Creates an empty database.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn bare(server: Server, base: &str, name: &str) -> Result<Self> {
        let name = format!("nemesis_{name}_{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("pillarbox-{}-{name}", server.name()));
        fs::create_dir_all(&dir)?;
        let (url, undo) = match server {
            Server::Postgres => Self::schema(base, &name).await?,
            Server::Mysql => Self::database(base, &name).await?,
            Server::Sqlite => (format!("sqlite://{}", dir.join("bank.db").display()), None),
        };
        Ok(Self { server, dir, undo, ..Self::at(url).await? })
    }

    /// The same with its tables on a small disk.
    ///
    /// # Errors
    /// When there can be none, or the database says no.
    pub async fn on_small_disk(
        server: Server,
        base: &str,
        name: &str,
        accounts: i64,
    ) -> Result<Self> {
        let name = format!("nemesis_{name}_{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("pillarbox-{}-{name}", server.name()));
        let mount = dir.join("disk");
        fs::create_dir_all(&mount)?;
        let (url, undo, disk) = match server {
            Server::Postgres => {
                let admin = sqlx::PgPool::connect(base).await?;
                let data: String =
                    sqlx::query_scalar("show data_directory").fetch_one(&admin).await?;
                let disk = Disk::mount(&mount, Path::new(&data))?;
                let create = format!("create tablespace {name} location '{}'", mount.display());
                sqlx::query(AssertSqlSafe(create)).execute(&admin).await?;
                let (url, undo) = Self::schema(base, &name).await?;
                let url = format!("{url}%20-cdefault_tablespace%3D{name}");
                let undo = undo.map(|(bank, mut undo)| {
                    undo.push(format!("drop tablespace if exists {name}"));
                    (bank, undo)
                });
                (url, undo, disk)
            }
            Server::Mysql => {
                let (url, undo) = Self::database(base, &name).await?;
                let admin = sqlx::MySqlPool::connect(base).await?;
                let data: String = sqlx::query_scalar("select @@datadir").fetch_one(&admin).await?;
                let disk = Disk::mount(&Path::new(&data).join(&name), Path::new(&data))?;
                (url, undo, disk)
            }
            Server::Sqlite => {
                let disk = Disk::mount(&mount, &dir)?;
                (format!("sqlite://{}", mount.join("bank.db").display()), None, disk)
            }
        };
        let disk = Some(disk);
        Self { server, dir, undo, disk, ..Self::at(url).await? }.prepared(accounts).await
    }

    /// A database that is there, with nothing done to it.
    async fn at(url: String) -> Result<Self> {
        let (store, bank) = attach(&url).await?;
        let (server, dir) = (Server::Sqlite, PathBuf::new());
        Ok(Self { server, url, store, bank, dir, undo: None, disk: None, pgbouncer: None })
    }

    async fn prepared(self, accounts: i64) -> Result<Self> {
        self.store.migrate().await?;
        self.bank.prepare(accounts).await?;
        Ok(self)
    }

    async fn schema(base: &str, name: &str) -> Result<(String, Option<(Bank, Vec<String>)>)> {
        let admin = sqlx::PgPool::connect(base).await?;
        let create = format!("create schema {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&admin).await?;
        let joint = if base.contains('?') { '&' } else { '?' };
        let url = format!("{base}{joint}options=-csearch_path%3D{name}");
        Ok((
            url,
            Some((Bank::Postgres(admin), vec![format!("drop schema if exists {name} cascade")])),
        ))
    }

    async fn database(base: &str, name: &str) -> Result<(String, Option<(Bank, Vec<String>)>)> {
        let options: MySqlConnectOptions = base.parse()?;
        let admin = sqlx::MySqlPool::connect_with(options.clone()).await?;
        let create = format!("create database {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&admin).await?;
        let url = options.database(name).to_url_lossy().to_string();
        Ok((url, Some((Bank::Mysql(admin), vec![format!("drop database if exists {name}")]))))
    }

    /// The same behind a pooler. Sessions are shared, and with them search paths: it has a
    /// database of its own instead of a schema.
    ///
    /// # Errors
    /// When the database or the pooler says no.
    pub async fn behind_pgbouncer(base: &str, name: &str, accounts: i64) -> Result<Self> {
        let name = format!("nemesis_{name}_{}", std::process::id());
        let dir = std::env::temp_dir().join(format!("pillarbox-{name}"));
        fs::create_dir_all(&dir)?;
        let admin = sqlx::PgPool::connect(base).await?;
        let create = format!("create database {name}");
        sqlx::query(AssertSqlSafe(create)).execute(&admin).await?;
        let undo =
            Some((Bank::Postgres(admin), vec![format!("drop database {name} with (force)")]));
        let pgbouncer = PgBouncer::start(base, &dir).await?;
        let url = format!("postgres://app@127.0.0.1:{}/{name}?pooler=true", pgbouncer.port);
        let (server, pgbouncer) = (Server::Postgres, Some(pgbouncer));
        Self { server, dir, undo, pgbouncer, ..Self::at(url).await? }.prepared(accounts).await
    }

    /// The log that all relay processes append to.
    pub fn log(&self) -> PathBuf {
        self.dir.join("history.jsonl")
    }

    /// What relay processes say about themselves.
    pub fn errors(&self) -> PathBuf {
        self.dir.join("relay.err")
    }

    /// Once this file is there, what fails by order does not fail any more.
    pub fn healed(&self) -> PathBuf {
        healed(&self.log())
    }

    /// Removes everything; a deployment that is dropped instead is kept for inspection.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn close(mut self) -> Result {
        match &self.bank {
            Bank::Postgres(pool) => pool.close().await,
            Bank::Mysql(pool) => pool.close().await,
            Bank::Sqlite(pool) => pool.close().await,
        }
        drop(self.pgbouncer.take());
        if let Some(disk) = self.disk.take() {
            // A directory on which something is mounted cannot be removed with its database.
            self.undo().await.ok();
            drop(disk);
        }
        self.undo().await?;
        Ok(fs::remove_dir_all(&self.dir)?)
    }

    async fn undo(&self) -> Result {
        let Some((bank, all)) = &self.undo else { return Ok(()) };
        for sql in all {
            let sql = AssertSqlSafe(sql.clone());
            match bank {
                Bank::Postgres(admin) => sqlx::query(sql).execute(admin).await.map(drop)?,
                Bank::Mysql(admin) => sqlx::query(sql).execute(admin).await.map(drop)?,
                Bank::Sqlite(_) => {}
            }
        }
        Ok(())
    }

    /// How many events wait.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn pending(&self) -> Result<u64> {
        let stats = self.store.stats().await?;
        Ok(stats.new + stats.waiting + stats.held)
    }

    /// The whole log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.log())?)
    }

    /// Where this is, to be told to a person.
    pub fn path(&self) -> &Path {
        &self.dir
    }
}

/// The file beside a log that says that nothing is to fail any more.
pub fn healed(log: &Path) -> PathBuf {
    log.with_file_name("healed")
}

/// Both views of the database at a URL.
///
/// # Errors
/// When it cannot be reached.
pub async fn attach(url: &str) -> pillarbox::Result<(Arc<dyn Store>, Bank)> {
    if url.starts_with("postgres") {
        let store = PostgresStore::connect(url).await?;
        let bank = Bank::Postgres(store.pool().clone());
        return Ok((Arc::new(store), bank));
    }
    if url.starts_with("sqlite") {
        let store = SqliteStore::connect(url).await?;
        let bank = Bank::Sqlite(store.pool().clone());
        return Ok((Arc::new(store), bank));
    }
    let store = MysqlStore::connect(url).await?;
    let bank = Bank::Mysql(store.pool().clone());
    Ok((Arc::new(store), bank))
}
