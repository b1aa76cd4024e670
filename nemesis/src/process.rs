//! Relay processes: started, killed, paused, resumed, stopped.

use std::{
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use tokio::process::{Child, Command};

use crate::{Result, config::ProcessConfig, role::Role};

/// The library that shifts clocks, where the Debian package `faketime` is installed.
pub fn faketime() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let dirs = dirs.chain([PathBuf::from("/usr/lib")]);
    dirs.map(|dir| dir.join("faketime/libfaketimeMT.so.1")).find(|file| file.is_file())
}

/// A process that does not end for so long when it is asked to is stuck.
const EXIT_TIMEOUT: Duration = Duration::from_secs(240);

const SIGTERM: u32 = 15;

/// How often a process is looked at.
const LOOK: Duration = Duration::from_millis(5);

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

    /// With its clock so many hours ahead, by way of a library. Only the wall clock: a monotonic one
    /// has no hours.
    #[must_use]
    pub fn ahead(self, hours: i64, library: &Path) -> Self {
        self.env("LD_PRELOAD", &library.to_string_lossy())
            .env("FAKETIME", &format!("{hours:+}h"))
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
    }

    /// Starts a process, killed when it is dropped.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(&self, role: Role, config: &ProcessConfig, errors: &Path) -> Result<Process> {
        let errors = fs::OpenOptions::new().create(true).append(true).open(errors)?;
        let child = Command::new(&self.path)
            .args(["process", &role.name()])
            .arg(serde_json::to_string(config)?)
            // Or the traces of panics on demand would be what is measured.
            .env("RUST_BACKTRACE", "0")
            .envs(self.environment.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Process { child, incarnation: config.incarnation.clone() })
    }
}

/// What a process has taken of the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The most memory it ever had, in KiB.
    pub memory: u64,
    /// Its threads.
    pub threads: u64,
    /// Its open files, connections among them.
    pub files: u64,
}

impl Usage {
    /// The larger of each.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            memory: self.memory.max(other.memory),
            threads: self.threads.max(other.threads),
            files: self.files.max(other.files),
        }
    }
}

/// A number from a process's status.
fn status(proc: &str, name: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("{proc}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    Ok(number.ok_or_else(|| format!("no {name}"))?.parse()?)
}

/// A process that runs, or is paused.
#[derive(Debug)]
pub struct Process {
    child: Child,
    incarnation: String,
}

impl Process {
    /// Its name in the log.
    pub fn incarnation(&self) -> &str {
        &self.incarnation
    }

    /// SIGKILL, and wait for the end.
    ///
    /// # Errors
    /// When it had ended by itself, which it must not.
    pub async fn kill(mut self) -> Result {
        if let Some(status) = self.child.try_wait()? {
            return Err(
                format!("{} ended by itself ({status}), see relay.err", self.incarnation).into()
            );
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
        // Before it listens for the signal, it would be killed by it.
        tokio::time::timeout(EXIT_TIMEOUT, self.handles_sigterm()).await??;
        self.send("TERM").await?;
        self.ended(EXIT_TIMEOUT).await
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not end in time, or not well.
    pub async fn ended(&mut self, timeout: Duration) -> Result {
        let status = tokio::time::timeout(timeout, self.child.wait()).await??;
        if status.success() {
            return Ok(());
        }
        Err(format!("{} ended with {status}, see relay.err", self.incarnation).into())
    }

    /// Waits until it is gone, killed by a signal.
    ///
    /// # Errors
    /// When it does not end in time, or not like this.
    pub async fn died(&mut self) -> Result {
        let status = tokio::time::timeout(EXIT_TIMEOUT, self.child.wait()).await??;
        match status.signal() {
            Some(9) => Ok(()),
            _ => Err(format!("{} was not killed, it ended with {status}", self.incarnation).into()),
        }
    }

    /// Whether it is paused.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn stands_still(&self) -> Result<bool> {
        let pid = self.child.id().ok_or("the process has ended")?;
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(status.lines().any(|line| line.starts_with("State:\tT")))
    }

    /// Waits until it has a handler for SIGTERM.
    async fn handles_sigterm(&self) -> Result {
        loop {
            let status = fs::read_to_string(format!("{}/status", self.proc()?))?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
            let caught = u64::from_str_radix(caught.ok_or("no SigCgt:")?.trim(), 16)?;
            if caught & (1 << (SIGTERM - 1)) != 0 {
                return Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// How much memory it has, in KiB.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn memory(&self) -> Result<u64> {
        status(&self.proc()?, "VmRSS:")
    }

    /// What it has taken of the machine.
    ///
    /// # Errors
    /// When the system does not tell.
    pub fn usage(&self) -> Result<Usage> {
        let proc = self.proc()?;
        let files = fs::read_dir(format!("{proc}/fd"))?.count();
        let (memory, threads) = (status(&proc, "VmHWM:")?, status(&proc, "Threads:")?);
        Ok(Usage { memory, threads, files: u64::try_from(files)? })
    }

    fn proc(&self) -> Result<String> {
        let pid = self.child.id().ok_or("the process has ended")?;
        Ok(format!("/proc/{pid}"))
    }

    async fn send(&self, signal: &str) -> Result {
        let pid = self.child.id().ok_or_else(|| format!("{} has ended", self.incarnation))?;
        let sent = Command::new("kill").args(["-s", signal, &pid.to_string()]).status().await?;
        if sent.success() { Ok(()) } else { Err(format!("kill -s {signal}: {sent}").into()) }
    }
}
