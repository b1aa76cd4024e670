//! A private PostgreSQL.

mod program;

use std::{
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{Server, Service, server_dir::ServerDir};
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

    fn server(&self, home: &Path) -> Result<Box<dyn Server>> {
        let programs =
            program::dir().ok_or("PostgreSQL is not installed; run `cargo xtask services up`")?;
        let major = program::major(&programs)?;
        let server_dir = ServerDir::new(home.join(format!("postgres-{major}")), "postgres")?;
        Ok(Box::new(PostgresServer::new(programs, server_dir)))
    }
}

/// One major version's programs and files; the running server needs no other state.
#[derive(Debug)]
pub(crate) struct PostgresServer {
    programs: PathBuf,
    server_dir: ServerDir,
}

impl Server for PostgresServer {
    fn url(&self) -> Option<String> {
        self.answering_port().map(url)
    }

    fn start(&self) -> Result<String> {
        let port = match self.answering_port() {
            Some(port) => port,
            None => self.start_anew()?,
        };
        self.create_database(port)?;
        Ok(url(port))
    }

    fn stop(&self) -> Result {
        output(self.pg_ctl().args(["-m", "fast", "-w", "stop"])).map(drop)
    }

    fn version(&self) -> Result<String> {
        let port = self.answering_port().ok_or("the server does not answer")?;
        self.query(port, "show server_version")
    }
}

fn url(port: u16) -> String {
    format!("postgres://postgres@127.0.0.1:{port}/{DATABASE}")
}

impl PostgresServer {
    /// A server whose programs are in a directory.
    pub(crate) const fn new(programs: PathBuf, server_dir: ServerDir) -> Self {
        Self { programs, server_dir }
    }

    /// The port of the server, if its process lives and it takes a query.
    fn answering_port(&self) -> Option<u16> {
        let port = fs::read_to_string(self.server_dir.port_file()).ok()?.trim().parse().ok()?;
        output(self.pg_ctl().arg("status")).ok()?;
        self.query(port, "select 1").ok()?;
        Some(port)
    }

    fn start_anew(&self) -> Result<u16> {
        self.server_dir.create_data(|draft| self.create_cluster(draft))?;
        let port = self.server_dir.port(PORTS, &Postgres)?;
        self.launch(port)?;
        Ok(port)
    }

    fn create_cluster(&self, data: &Path) -> Result {
        let initdb = |locale: &str| -> Result {
            self.server_dir.clear(data)?;
            let mut command = self.command("initdb");
            command.args("-A trust -U postgres -E UTF8 --no-sync".split(' ')).arg(locale);
            output(command.arg("-D").arg(data)).map(drop)
        };
        // Not every machine has C.UTF-8; C has the same order of bytes.
        initdb("--locale=C.UTF-8").or_else(|_| initdb("--locale=C"))
    }

    /// Starts the server and waits until it answers.
    ///
    /// It gets none of our pipes: whoever reads them would wait for the server to end.
    fn launch(&self, port: u16) -> Result {
        let mut command = self.pg_ctl();
        command.arg("-l").arg(self.server_dir.log());
        command.arg("-o").arg(format!("{SETTINGS} -c port={port}")).args(["-w", "start"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let line = by_hand(&command);
        let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
        if !status.success() {
            return Err(self.server_dir.failed_start(&line));
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
        command.arg("-D").arg(self.server_dir.data());
        command
    }

    fn command(&self, program: &str) -> Command {
        self.server_dir.command(&self.programs.join(program))
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
