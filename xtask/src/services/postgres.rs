//! A private PostgreSQL.

mod program;

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Service, home::user};
use crate::{
    Result,
    command::{by_hand, output},
};

/// Far from 5432, so that nobody's own server is in the way.
const PORTS: RangeInclusive<u16> = 54329..=54349;
const DATABASE: &str = "pillarbox_test";

/// Everything here goes through a shell: it must need no quotes. The socket directory is the data
/// directory, which the server works in. Durability stays on: crash tests rely on it.
const SETTINGS: &str = "-c listen_addresses=127.0.0.1 -c unix_socket_directories=. \
    -c max_connections=200 -c fsync=on -c synchronous_commit=on";

#[derive(Debug)]
pub(crate) struct Postgres;

impl Service for Postgres {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn variable(&self) -> &'static str {
        "PILLARBOX_POSTGRES_URL"
    }

    fn compose_url(&self) -> &'static str {
        "postgres://postgres@127.0.0.1:54329/pillarbox_test"
    }

    fn missing_package(&self) -> Option<&'static str> {
        program::dir().is_none().then_some("postgresql")
    }

    fn url(&self, home: &Path) -> Option<String> {
        Server::find(home).ok()?.answering_port().map(url)
    }

    fn start(&self, home: &Path) -> Result<String> {
        let server = Server::find(home)?;
        let port = match server.answering_port() {
            Some(port) => port,
            None => server.start()?,
        };
        server.create_database(port)?;
        Ok(url(port))
    }

    fn stop(&self, home: &Path) -> Result {
        let server = Server::find(home)?;
        output(server.pg_ctl().args(["-m", "fast", "-w", "stop"])).map(drop)
    }
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{DATABASE}")
}

/// One major version's programs and files; the running server needs no other state.
struct Server {
    programs: PathBuf,
    dir: PathBuf,
    owner: Owner,
}

/// PostgreSQL refuses to run as root.
enum Owner {
    Us,
    PostgresUser,
}

impl Server {
    fn find(home: &Path) -> Result<Self> {
        let programs =
            program::dir().ok_or("PostgreSQL is not installed; run `cargo xtask services up`")?;
        let major = program::major(&programs)?;
        let owner = if user()? == 0 { Owner::PostgresUser } else { Owner::Us };
        Ok(Self { programs, dir: home.join(format!("postgres-{major}")), owner })
    }

    /// The port of the server, if its process lives and it takes a query.
    fn answering_port(&self) -> Option<u16> {
        let port = fs::read_to_string(self.dir.join("port")).ok()?.trim().parse().ok()?;
        output(self.pg_ctl().arg("status")).ok()?;
        self.query(port, "select 1").ok()?;
        Some(port)
    }

    fn start(&self) -> Result<u16> {
        if !self.data().exists() {
            self.create_dir()?;
            self.create_cluster()?;
        }
        let port = free_port()?;
        // Written first: a server whose port nobody noted could be neither used nor stopped.
        fs::write(self.dir.join("port"), port.to_string()).map_err(|error| self.cannot(&error))?;
        self.launch(port)?;
        Ok(port)
    }

    fn create_dir(&self) -> Result {
        fs::create_dir_all(&self.dir).map_err(|error| self.cannot(&error))?;
        match self.owner {
            Owner::Us => Ok(()),
            Owner::PostgresUser => {
                output(Command::new("chown").arg("postgres:").arg(&self.dir)).map(drop)
            }
        }
    }

    /// Creates the data directory beside its place, so that half of one is never started.
    fn create_cluster(&self) -> Result {
        let draft = self.dir.join("data.new");
        let initdb = |locale: &str| -> Result {
            remove_dir(&draft).map_err(|error| self.cannot(&error))?;
            let mut command = self.command("initdb");
            command.args("-A trust -U postgres -E UTF8 --no-sync".split(' ')).arg(locale);
            output(command.arg("-D").arg(&draft)).map(drop)
        };
        // Not every machine has C.UTF-8; C has the same order of bytes.
        initdb("--locale=C.UTF-8").or_else(|_| initdb("--locale=C"))?;
        fs::rename(&draft, self.data()).map_err(|error| self.cannot(&error).into())
    }

    /// Starts the server and waits until it answers.
    ///
    /// It gets none of our pipes: whoever reads them would wait for the server to end.
    fn launch(&self, port: u16) -> Result {
        let mut command = self.pg_ctl();
        command.arg("-l").arg(self.log()).arg("-o").arg(format!("{SETTINGS} -c port={port}"));
        command.args(["-w", "start"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let line = by_hand(&command);
        let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
        if !status.success() {
            let (log, end) = (self.log(), self.end_of_log());
            let (log, dir) = (log.display(), self.dir.display());
            return Err(format!(
                "`{line}` failed; {log} ends:\n{end}\nto start afresh, remove {dir}"
            )
            .into());
        }
        Ok(())
    }

    fn create_database(&self, port: u16) -> Result {
        let exists = format!("select 1 from pg_database where datname = '{DATABASE}'");
        if self.query(port, &exists)?.is_empty() {
            self.query(port, &format!("create database {DATABASE}"))?;
        }
        Ok(())
    }

    fn query(&self, port: u16, sql: &str) -> Result<String> {
        let ours = self.programs.join("psql");
        let mut psql = Command::new(if ours.is_file() { ours } else { "psql".into() });
        psql.args("-XAtqw -h 127.0.0.1 -U postgres -d postgres".split(' '));
        psql.args(["-p", &port.to_string(), "-c", sql]).env("PGCONNECT_TIMEOUT", "5");
        output(&mut psql)
    }

    fn pg_ctl(&self) -> Command {
        let mut command = self.command("pg_ctl");
        command.arg("-D").arg(self.data());
        command
    }

    /// A program of the server, run as the server's user in a directory that user can enter.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match self.owner {
            Owner::Us => Command::new(program),
            Owner::PostgresUser => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(program);
                command
            }
        };
        command.current_dir(&self.dir);
        command
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    fn log(&self) -> PathBuf {
        self.dir.join("log")
    }

    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }

    fn cannot(&self, error: &io::Error) -> String {
        format!("cannot write to {}: {error}", self.dir.display())
    }
}

fn free_port() -> Result<u16> {
    let is_free = |port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok();
    let taken = || {
        let (first, last) = (PORTS.start(), PORTS.end());
        format!("ports {first} to {last} are all taken; free one or set PILLARBOX_POSTGRES_URL")
    };
    Ok(PORTS.into_iter().find(is_free).ok_or_else(taken)?)
}

fn remove_dir(dir: &Path) -> io::Result<()> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_pass_a_shell_unquoted() {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=., ".contains(c);

        assert!(SETTINGS.chars().all(is_plain), "{SETTINGS}");
    }
}
