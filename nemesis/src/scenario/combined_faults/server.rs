//! Kills of the database server, where it is ours.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::Result;
use crate::bank::Bank;
use crate::rng::SeededRng;
use crate::scenario::Environment;

/// Whether servers are ours to kill and to start again.
pub(in crate::scenario) fn is_ours() -> bool {
    std::env::var_os(RESTART_SERVERS).is_some()
}

/// Starts the server again if it is ours and does not run. Returns whether that was needed.
pub(in crate::scenario) async fn see_to(bank: &Bank) -> Result<bool> {
    let Some(program) = std::env::var_os(RESTART_SERVERS) else { return Ok(false) };
    if bank.committed().await.is_ok() {
        return Ok(false);
    }
    restart(&program).await?;
    Ok(true)
}

/// Names the program that starts servers which do not run: `PROGRAM services restart`.
const RESTART_SERVERS: &str = "PILLARBOX_RESTART_SERVERS";

/// Between two kills there is time to do something else.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) struct ServerKills(Option<JoinHandle<Result<usize>>>);

impl ServerKills {
    pub(super) fn start(env: &Environment, over: &Arc<AtomicBool>) -> Self {
        let Some(program) = std::env::var_os(RESTART_SERVERS) else { return Self(None) };
        if matches!(env.deployment.bank, Bank::Sqlite(_)) {
            return Self(None);
        }
        let (bank, over) = (env.deployment.bank.clone(), Arc::clone(over));
        let mut rng = SeededRng::new(env.options.seed.wrapping_add(97));
        Self(Some(tokio::spawn(async move {
            let mut crashed = 0;
            loop {
                tokio::time::sleep(rng.jittered(PAUSE)).await;
                if crashed > 0 && over.load(Ordering::Relaxed) {
                    return Ok(crashed);
                }
                kill(&bank).await?;
                crashed += 1;
                restart(&program).await?;
            }
        })))
    }

    /// How often it was killed; `None` where it is not ours.
    pub(super) async fn join(self) -> Result<Option<usize>> {
        match self.0 {
            Some(crashing) => Ok(Some(crashing.await??)),
            None => Ok(None),
        }
    }
}

async fn kill(bank: &Bank) -> Result {
    let pid = server_pid(bank).await?;
    let sent = Command::new("kill").args(["-s", "KILL", &pid]).status().await?;
    if sent.success() { Ok(()) } else { Err(format!("kill -s KILL {pid}: {sent}").into()) }
}

/// The process that all sessions belong to.
async fn server_pid(bank: &Bank) -> Result<String> {
    match bank {
        Bank::Postgres(pool) => {
            let session: i32 =
                sqlx::query_scalar("select pg_backend_pid()").fetch_one(pool).await?;
            let status = fs::read_to_string(format!("/proc/{session}/status"))?;
            let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"));
            Ok(parent.ok_or("the session has no parent")?.trim().to_owned())
        }
        Bank::Mysql(pool) => {
            let file: String = sqlx::query_scalar("select @@pid_file").fetch_one(pool).await?;
            Ok(fs::read_to_string(file)?.trim().to_owned())
        }
        Bank::Sqlite(_) => Err("a file has no server".into()),
    }
}

/// What is left of a killed server may be in the way for a moment.
async fn restart(program: &std::ffi::OsStr) -> Result {
    let mut last = String::new();
    for _ in 0..20 {
        let mut command = Command::new(program);
        // Servers that are named in the environment are taken for somebody else's.
        command.env_remove("PILLARBOX_POSTGRES_URL").env_remove("PILLARBOX_MYSQL_URL");
        let restarted = command.args(["services", "restart"]).output().await?;
        if restarted.status.success() {
            return Ok(());
        }
        last = String::from_utf8_lossy(&restarted.stderr).into_owned();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(format!("the server does not start again: {last}").into())
}
