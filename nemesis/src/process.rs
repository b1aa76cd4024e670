//! Relay processes: started, killed, paused, resumed, stopped.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::{Child, Command};

use crate::{Result, orders::Orders};

/// How long a process may take to end when it is asked to.
const PATIENCE: Duration = Duration::from_secs(60);

/// How relay processes are started.
#[derive(Clone, Debug)]
pub struct Program {
    /// The file of this crate's program.
    pub path: PathBuf,
    /// What is set around it.
    pub environment: Vec<(String, String)>,
}

impl Program {
    /// This program as it is.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), environment: Vec::new() }
    }

    /// With this variable set.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts a process, killed when it is dropped.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self, role: &str, orders: &Orders, errors: &Path) -> Result<Process> {
        let errors = fs::OpenOptions::new().create(true).append(true).open(errors)?;
        let child = Command::new(&self.path)
            .arg(role)
            .arg(serde_json::to_string(orders)?)
            // Or the traces of panics on demand would be what is measured.
            .env("RUST_BACKTRACE", "0")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Process { child, life: orders.life.clone() })
    }
}

/// A process that runs, or is paused.
#[derive(Debug)]
pub struct Process {
    child: Child,
    life: String,
}

impl Process {
    /// Its name in the log.
    pub fn life(&self) -> &str {
        &self.life
    }

    /// SIGKILL, and wait for the end.
    ///
    /// # Errors
    /// When it had ended by itself, which it must not.
    pub async fn kill(mut self) -> Result {
        if let Some(status) = self.child.try_wait()? {
            return Err(format!("{} ended by itself ({status}), see relay.err", self.life).into());
        }
        Ok(self.child.kill().await?)
    }

    /// SIGSTOP: it stands still until it is resumed.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub async fn pause(&self) -> Result {
        self.send("STOP").await
    }

    /// SIGCONT: it goes on as if no time had passed.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub async fn resume(&self) -> Result {
        self.send("CONT").await
    }

    /// SIGTERM: it finishes what is under way, and ends.
    ///
    /// # Errors
    /// When it does not end in time, or not well.
    pub async fn stop(mut self) -> Result {
        self.send("TERM").await?;
        self.ended(PATIENCE).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not end in time, or not well.
    pub async fn ended(&mut self, patience: Duration) -> Result {
        let status = tokio::time::timeout(patience, self.child.wait()).await??;
        if status.success() {
            return Ok(());
        }
        Err(format!("{} ended with {status}, see relay.err", self.life).into())
    }

    /// How much memory it has, in KiB.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn memory(&self) -> Result<u64> {
        let pid = self.child.id().ok_or("the process has ended")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let size = line.and_then(|rest| rest.trim().strip_suffix(" kB"));
        Ok(size.ok_or("no VmRSS")?.parse()?)
    }

    async fn send(&self, signal: &str) -> Result {
        let pid = self.child.id().ok_or_else(|| format!("{} has ended", self.life))?;
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().await?;
        if sent.success() { Ok(()) } else { Err(format!("kill -s {signal}: {sent}").into()) }
    }
}
