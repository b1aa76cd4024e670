//! Kills of the database server, where it is ours.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::Result;
use crate::bank::Bank;
use crate::chance::Chance;
use crate::show::Stage;

/// Whether servers are ours to kill and to start again.
pub(in crate::show) fn is_ours() -> bool {
    std::env::var_os(REVIVE).is_some()
}

/// Starts the server again if it is ours and does not run. Returns whether that was needed.
pub(in crate::show) async fn see_to(bank: &Bank) -> Result<bool> {
    let Some(program) = std::env::var_os(REVIVE) else { return Ok(false) };
    if bank.truth().await.is_ok() {
        return Ok(false);
    }
    revive(&program).await?;
    Ok(true)
}

/// Names the program that starts servers which do not run: `PROGRAM services revive`.
const REVIVE: &str = "PILLARBOX_REVIVE";

/// Between two kills there is time to do something else.
const PAUSE: Duration = Duration::from_secs(5);

pub(super) struct Crashes(Option<JoinHandle<Result<usize>>>);

impl Crashes {
    pub(super) fn start(stage: &Stage, over: &Arc<AtomicBool>) -> Self {
        let Some(program) = std::env::var_os(REVIVE) else { return Self(None) };
        if matches!(stage.place.bank, Bank::Sqlite(_)) {
            return Self(None);
        }
        let (bank, over) = (stage.place.bank.clone(), Arc::clone(over));
        let mut chance = Chance::new(stage.seed.wrapping_add(97));
        Self(Some(tokio::spawn(async move {
            let mut crashed = 0;
            loop {
                tokio::time::sleep(chance.around(PAUSE)).await;
                if crashed > 0 && over.load(Ordering::Relaxed) {
                    return Ok(crashed);
                }
                kill(&bank).await?;
                crashed += 1;
                revive(&program).await?;
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
async fn revive(program: &std::ffi::OsStr) -> Result {
    let mut last = String::new();
    for _ in 0..20 {
        let mut command = Command::new(program);
        // Servers that are named in the environment are taken for somebody else's.
        command.env_remove("PILLARBOX_POSTGRES_URL").env_remove("PILLARBOX_MYSQL_URL");
        let revived = command.args(["services", "revive"]).output().await?;
        if revived.status.success() {
            return Ok(());
        }
        last = String::from_utf8_lossy(&revived.stderr).into_owned();
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    Err(format!("the server does not start again: {last}").into())
}
