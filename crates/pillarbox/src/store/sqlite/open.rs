//! Opening a file, which others may be opening for the first time, too.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _, SqlitePool};

use crate::clock::instant;
use crate::error::{Error, Result};

/// How long to wait for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY_DELAY: Duration = Duration::from_millis(5);

pub(super) async fn open(url: &str, options: SqliteConnectOptions) -> Result<SqlitePool> {
    let options = options
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .busy_timeout(BUSY_TIMEOUT)
        // Rows cross from the connection's thread to ours: with room for a whole read the two
        // do not wait for each other.
        .row_buffer_size(1024);
    // Each connection to `:memory:` would be a database of its own.
    let connections = if url.contains(":memory:") { 1 } else { 8 };
    if connections > 1 {
        change_to_wal(&options).await?;
    }
    let pool = SqlitePoolOptions::new()
        .max_connections(connections)
        .min_connections(1)
        // A file needs no ping; and one that is dropped half-way closes the connection, which
        // for a database in memory is all there is.
        .test_before_acquire(false)
        .idle_timeout(None)
        .max_lifetime(None);
    pool.connect_with(options).await.map_err(Error::connecting)
}

/// The mode stays with the file. A connection that changes it needs the file for itself, and SQLite
/// does not wait for that as long as it was told to wait for a lock.
async fn change_to_wal(options: &SqliteConnectOptions) -> Result<()> {
    let deadline = instant() + BUSY_TIMEOUT;
    loop {
        match options.connect().await {
            Ok(connection) => return connection.close().await.map_err(Error::connecting),
            Err(error) => {
                let error = Error::connecting(error);
                if !error.is_transient() || instant() >= deadline {
                    return Err(error);
                }
            }
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn many_open_a_new_file_at_once() {
        for round in 0..20 {
            let name = format!("pillarbox-open-{}-{round}.db", std::process::id());
            let file = std::env::temp_dir().join(name);
            let url = format!("sqlite://{}", file.display());
            let opening: Vec<_> = (0..8)
                .map(|_| {
                    let url = url.clone();
                    tokio::spawn(async move { open(&url, url.parse().unwrap()).await })
                })
                .collect();

            for pool in opening {
                pool.await.unwrap().unwrap().close().await;
            }

            for end in ["", "-wal", "-shm"] {
                std::fs::remove_file(format!("{}{end}", file.display())).ok();
            }
        }
    }
}
