//! What every private server has: a directory of its own, a user to run as, a port and a log.

use std::{
    fs, io,
    net::{Ipv4Addr, TcpListener},
    ops::RangeInclusive,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Service, home::user};
use crate::{Result, command::output};

/// The directory of one server.
#[derive(Debug)]
pub(crate) struct ServerDir {
    dir: PathBuf,
    owner: Owner,
}

/// Whom the files belong to and the server runs as; database servers refuse to run as root.
#[derive(Debug)]
enum Owner {
    Us,
    User(&'static str),
}

impl ServerDir {
    /// The place in `dir`; as root it belongs to `server_user`.
    pub(crate) fn new(dir: PathBuf, server_user: &'static str) -> Result<Self> {
        let owner = if user()? == 0 { Owner::User(server_user) } else { Owner::Us };
        Ok(Self { dir, owner })
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.dir.join("log.err")
    }

    /// The user to change to before a server starts, if that is not us.
    pub(super) const fn user(&self) -> Option<&'static str> {
        match self.owner {
            Owner::Us => None,
            Owner::User(name) => Some(name),
        }
    }

    /// Creates the data directory beside its place, so that half of one is never started.
    pub(super) fn create_data(&self, create: impl FnOnce(&Path) -> Result) -> Result {
        if self.data().exists() {
            return Ok(());
        }
        self.create_dir()?;
        let draft = self.dir.join("data.new");
        self.clear(&draft)?;
        create(&draft)?;
        fs::rename(&draft, self.data()).map_err(|error| self.cannot(&error))
    }

    pub(super) fn clear(&self, dir: &Path) -> Result {
        match fs::remove_dir_all(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(self.cannot(&error)),
            _ => Ok(()),
        }
    }

    /// A program run as the server's user in a directory that user can enter.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = match self.owner {
            Owner::Us => Command::new(program),
            Owner::User(name) => {
                let mut command = Command::new("runuser");
                command.args(["-u", name, "--"]).arg(program);
                command
            }
        };
        command.current_dir(&self.dir);
        command
    }

    /// Why a server did not start, as far as its log knows.
    pub(super) fn failed_start(&self, line: &str) -> Box<dyn std::error::Error> {
        let (log, end, dir) = (self.log(), self.end_of_log(), self.dir.display());
        let log = log.display();
        format!("`{line}` failed; {log} ends:\n{end}\nto start afresh, remove {dir}").into()
    }

    pub(super) fn cannot(&self, error: &io::Error) -> Box<dyn std::error::Error> {
        format!("cannot write to {}: {error}", self.dir.display()).into()
    }

    fn create_dir(&self) -> Result {
        fs::create_dir_all(&self.dir).map_err(|error| self.cannot(&error))?;
        match self.owner {
            Owner::Us => Ok(()),
            Owner::User(name) => {
                output(Command::new("chown").arg(format!("{name}:")).arg(&self.dir)).map(drop)
            }
        }
    }

    /// Where the port is noted.
    pub(super) fn port_file(&self) -> PathBuf {
        self.dir.join("port")
    }

    /// The port it had before, so that those who used it find it again, or the first free one. Noted
    /// before the start: a server whose port nobody noted could be neither used nor stopped.
    pub(super) fn port(&self, ports: RangeInclusive<u16>, service: &dyn Service) -> Result<u16> {
        let noted = fs::read_to_string(self.port_file()).ok();
        let had = noted.and_then(|port| port.trim().parse().ok());
        let port = match had.filter(is_free) {
            Some(port) => port,
            None => free_port(ports, service)?,
        };
        fs::write(self.port_file(), port.to_string()).map_err(|error| self.cannot(&error))?;
        Ok(port)
    }

    fn end_of_log(&self) -> String {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    }
}

fn is_free(port: &u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok()
}

/// The first port nobody listens on.
fn free_port(ports: RangeInclusive<u16>, service: &dyn Service) -> Result<u16> {
    let (first, last) = (*ports.start(), *ports.end());
    let taken = || {
        let variable = service.variable();
        format!("ports {first} to {last} are all taken; free one or set {variable}")
    };
    Ok(ports.into_iter().find(is_free).ok_or_else(taken)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Postgres;

    #[test]
    fn a_taken_port_is_passed_over() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();

        let error = free_port(port..=port, &Postgres).unwrap_err();

        let expected =
            format!("ports {port} to {port} are all taken; free one or set PILLARBOX_POSTGRES_URL");
        assert_eq!(error.to_string(), expected);
        assert_ne!(free_port(port..=port.saturating_add(20), &Postgres).unwrap(), port);
    }

    #[test]
    fn a_server_comes_back_where_it_was() {
        let dir = scratch("port");
        let server_dir = ServerDir { dir: dir.clone(), owner: Owner::Us };
        let had = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = had.local_addr().unwrap().port();
        fs::write(server_dir.port_file(), port.to_string()).unwrap();

        let other = server_dir.port(1024..=u16::MAX, &Postgres).unwrap();
        fs::write(server_dir.port_file(), port.to_string()).unwrap();
        drop(had);
        let same = server_dir.port(1024..=u16::MAX, &Postgres).unwrap();

        assert_ne!(other, port, "somebody listens there");
        assert_eq!(same, port);
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_failed_start_shows_the_end_of_the_log_only() {
        let dir = scratch("log");
        let server_dir = ServerDir { dir: dir.clone(), owner: Owner::Us };
        let lines: Vec<String> = (1..=20).map(|line| format!("line {line}")).collect();
        fs::write(server_dir.log(), lines.join("\n")).unwrap();

        let error = server_dir.failed_start("server --port=1").to_string();

        assert!(error.starts_with("`server --port=1` failed; "), "{error}");
        assert!(error.contains("ends:\nline 13\n"), "{error}");
        assert!(error.contains("line 20\nto start afresh, remove "), "{error}");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn half_a_data_directory_is_replaced() {
        let dir = scratch("half");
        fs::create_dir_all(dir.join("data.new/half")).unwrap();
        let server_dir = ServerDir { dir: dir.clone(), owner: Owner::Us };

        server_dir.create_data(|draft| Ok(fs::create_dir_all(draft.join("whole"))?)).unwrap();

        assert!(server_dir.data().join("whole").exists());
        assert!(!server_dir.data().join("half").exists());
        fs::remove_dir_all(dir).unwrap();
    }

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("pillarbox-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }
}
