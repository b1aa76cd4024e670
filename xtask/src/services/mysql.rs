//! A private MariaDB, which stands for the MySQL family.

mod program;

use std::{
    ops::RangeInclusive,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use self::program::Programs;
use super::{
    Service,
    place::{Place, free_port},
};
use crate::{
    Result,
    command::{by_hand, output},
};

/// Far from 3306, so that nobody's own server is in the way.
const PORTS: RangeInclusive<u16> = 33069..=33089;
const DATABASE: &str = "pillarbox_test";

/// The socket is named relative to the data directory, where server and client work: a whole path
/// could be longer than a socket's name may be.
const SOCKET: &str = "--socket=socket";

/// Whatever is not named here stays as the server has it, its isolation level above all. Durability
/// is spelled out, since crash tests rely on it.
const SETTINGS: [&str; 6] = [
    SOCKET,
    "--pid-file=pid",
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=400",
    "--innodb-flush-log-at-trx-commit=1",
];

/// A server that was killed recovers before it answers: together these are a minute.
const ATTEMPTS: u32 = 600;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(crate) struct MySql;

impl Service for MySql {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn variable(&self) -> &'static str {
        "PILLARBOX_MYSQL_URL"
    }

    fn compose_url(&self) -> &'static str {
        "mysql://root@127.0.0.1:33069/pillarbox_test"
    }

    fn missing_package(&self) -> Option<&'static str> {
        Programs::find().is_none().then_some("mariadb-server")
    }

    fn url(&self, home: &Path) -> Option<String> {
        Server::find(home).ok()?.port().ok().map(url)
    }

    fn start(&self, home: &Path) -> Result<String> {
        let server = Server::find(home)?;
        let port = match server.port() {
            Ok(port) => port,
            Err(_) => server.start()?,
        };
        server.query(&format!("create database if not exists {DATABASE}"))?;
        Ok(url(port))
    }

    fn stop(&self, home: &Path) -> Result {
        Server::find(home)?.stop()
    }
}

fn url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{DATABASE}")
}

/// One release series' programs and files; the running server needs no other state.
struct Server {
    programs: Programs,
    place: Place,
}

impl Server {
    fn find(home: &Path) -> Result<Self> {
        let programs =
            Programs::find().ok_or("MariaDB is not installed; run `cargo xtask services up`")?;
        let series = program::series(&programs.server)?;
        let place = Place::new(home.join(format!("mysql-{series}")), "mysql")?;
        Ok(Self { programs, place })
    }

    /// The port of the server, from its own mouth: only ours listens on that socket.
    fn port(&self) -> Result<u16> {
        let port = self.query("select @@port")?;
        Ok(port.parse().map_err(|error| format!("the server's port is {port:?}: {error}"))?)
    }

    fn start(&self) -> Result<u16> {
        self.place.create_data(|draft| self.create_tables(draft))?;
        let mut command = self.launcher(free_port(PORTS, &MySql)?);
        let line = by_hand(&command);
        let child = command.spawn().map_err(|error| format!("cannot start `{line}`: {error}"))?;
        self.wait(child).ok_or_else(|| self.place.failed_start(&line))
    }

    /// Makes the system's tables, with a root that has no password.
    fn create_tables(&self, data: &Path) -> Result {
        let mut command = self.command(&self.programs.install);
        command.args(["--skip-test-db", "--auth-root-authentication-method=normal"]);
        command.arg(option("datadir", data));
        output(&mut command).map(drop)
    }

    /// The server, detached from us: it gets none of our pipes, since whoever reads them would wait
    /// for it to end, and a key press that interrupts us leaves it alone.
    fn launcher(&self, port: u16) -> Command {
        let mut command = self.command(&self.programs.server);
        command.args(SETTINGS).arg(format!("--port={port}"));
        command.arg(option("datadir", &self.place.data()));
        command.arg(option("log-error", &self.place.log()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        detach(&mut command);
        command
    }

    /// Waits until the server answers; one that ends or stays silent has no port.
    fn wait(&self, mut child: Child) -> Option<u16> {
        for _ in 0..ATTEMPTS {
            if let Ok(port) = self.port() {
                return Some(port);
            }
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return None;
            }
            thread::sleep(BETWEEN_ATTEMPTS);
        }
        // It may be gone by now; its log says the rest.
        let _ = child.kill();
        None
    }

    /// Over its socket the command waits for the server's end.
    fn stop(&self) -> Result {
        output(self.client(&self.programs.admin).args(["--shutdown-timeout=60", "shutdown"]))
            .map(drop)
    }

    fn query(&self, sql: &str) -> Result<String> {
        let mut client = self.client(&self.programs.client);
        output(client.args(["--batch", "--skip-column-names", "--execute", sql]))
    }

    fn client(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.args(["--no-defaults", SOCKET, "--user=root", "--connect-timeout=5"]);
        command.current_dir(self.place.data());
        command
    }

    /// A program that changes to the server's user by itself, once it has read its options.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // That user may not write to our temporary directory.
        command.env("TMPDIR", self.place.dir());
        command.arg("--no-defaults");
        command.args(self.place.user().map(|name| format!("--user={name}")));
        command
    }
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

#[cfg(unix)]
fn detach(command: &mut Command) {
    use std::os::unix::process::CommandExt as _;

    command.process_group(0);
}

#[cfg(not(unix))]
fn detach(_command: &mut Command) {}
