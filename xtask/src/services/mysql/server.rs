//! A server of the MySQL family, from its first table to its end.

use std::{
    ops::RangeInclusive,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    MySql,
    program::{Product, Programs},
};
use crate::{
    Result,
    command::{by_hand, output},
    services::{Server, server_dir::ServerDir},
};

/// Far from 3306, so that nobody's own server is in the way.
const PORTS: RangeInclusive<u16> = 33069..=33089;
const DATABASE: &str = "pillarbox_test";

/// The socket is named relative to the data directory, where server and client work: a whole path
/// could be longer than a socket's name may be.
const SOCKET: &str = "--socket=socket";
const PID_FILE: &str = "pid";

/// Whatever is not named here stays as the server has it, its isolation level and its character
/// set above all. Durability is spelled out, since crash tests rely on it.
const SETTINGS: [&str; 5] = [
    SOCKET,
    "--bind-address=127.0.0.1",
    "--skip-name-resolve",
    "--max-connections=400",
    "--innodb-flush-log-at-trx-commit=1",
];

/// MySQL alone listens for a second protocol, and wants to know where files may be written.
const MYSQL_SETTINGS: [&str; 2] = ["--mysqlx=OFF", "--secure-file-priv="];

/// What the tests connect to, as whom; both stay as they are if they exist.
const PREPARE: &str = "\
    create database if not exists pillarbox_test; \
    create user if not exists root@'127.0.0.1'; \
    grant all on *.* to root@'127.0.0.1' with grant option";

/// A server that was killed recovers before it answers: together these are a minute.
const ATTEMPTS: u32 = 600;
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(100);

/// One server's programs and files; the running server needs no other state.
#[derive(Debug)]
pub(crate) struct MySqlServer {
    programs: Programs,
    server_dir: ServerDir,
}

impl Server for MySqlServer {
    fn url(&self) -> Option<String> {
        self.port().ok().map(url)
    }

    fn start(&self) -> Result<String> {
        let port = match self.port() {
            Ok(port) => port,
            Err(_) => self.start_anew()?,
        };
        self.query(PREPARE)?;
        Ok(url(port))
    }

    fn stop(&self) -> Result {
        self.query("shutdown")?;
        let pid_file = self.server_dir.data().join(PID_FILE);
        let is_gone = || (!pid_file.exists()).then_some(());
        let log = self.server_dir.log();
        let still = || format!("the server does not end; see {}", log.display());
        Ok(wait(is_gone, || false).ok_or_else(still)?)
    }

    fn version(&self) -> Result<String> {
        self.query("select version()")
    }
}

/// Without a password no server of the family asks for an encrypted connection.
fn url(port: u16) -> String {
    format!("mysql://root@127.0.0.1:{port}/{DATABASE}")
}

impl MySqlServer {
    pub(crate) const fn new(programs: Programs, server_dir: ServerDir) -> Self {
        Self { programs, server_dir }
    }

    /// The port of the server, from its own mouth: only ours listens on that socket.
    fn port(&self) -> Result<u16> {
        let port = self.query("select @@port")?;
        Ok(port.parse().map_err(|error| format!("the server's port is {port:?}: {error}"))?)
    }

    fn start_anew(&self) -> Result<u16> {
        self.server_dir.create_data(|draft| self.create_tables(draft))?;
        let mut command = self.launcher(self.server_dir.port(PORTS, &MySql)?);
        let line = by_hand(&command);
        let child = command.spawn().map_err(|error| format!("cannot start `{line}`: {error}"))?;
        self.answer_of(child).ok_or_else(|| self.server_dir.failed_start(&line))
    }

    /// Makes the system's tables, with a root that has no password.
    fn create_tables(&self, data: &Path) -> Result {
        let mut command = match &self.programs.product {
            Product::MariaDb { install } => {
                let mut command = self.command(install);
                command.args(["--skip-test-db", "--auth-root-authentication-method=normal"]);
                command
            }
            Product::MySql => {
                let mut command = self.command(&self.programs.server);
                command.args(MYSQL_SETTINGS).arg("--initialize-insecure");
                command
            }
        };
        output(command.arg(option("datadir", data))).map(drop)
    }

    /// The server, detached from us: it gets none of our pipes, since whoever reads them would wait
    /// for it to end, and a key press that interrupts us leaves it alone.
    fn launcher(&self, port: u16) -> Command {
        let mut command = self.command(&self.programs.server);
        command.args(SETTINGS).arg(format!("--port={port}"));
        if matches!(self.programs.product, Product::MySql) {
            command.args(MYSQL_SETTINGS);
        }
        command.arg(option("datadir", &self.server_dir.data()));
        command.arg(option("pid-file", Path::new(PID_FILE)));
        command.arg(option("log-error", &self.server_dir.log()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        detach(&mut command);
        command
    }

    /// The port of a server that was just started, once it answers.
    fn answer_of(&self, mut child: Child) -> Option<u16> {
        let has_ended = || child.try_wait().is_ok_and(|status| status.is_some());
        let port = wait(|| self.port().ok(), has_ended);
        if port.is_none() {
            // It may have ended by itself; its log says the rest.
            let _ = child.kill();
        }
        port
    }

    fn query(&self, sql: &str) -> Result<String> {
        let mut client = Command::new(&self.programs.client);
        client.args(["--no-defaults", SOCKET, "--user=root", "--connect-timeout=5"]);
        client.args(["--batch", "--skip-column-names", "--execute", sql]);
        output(client.current_dir(self.server_dir.data()))
    }

    /// A program that changes to the server's user by itself, once it has read its options.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        // That user may not write to our temporary directory.
        command.env("TMPDIR", self.server_dir.dir());
        command.arg("--no-defaults");
        command.args(self.server_dir.user().map(|name| format!("--user={name}")));
        command.args(self.programs.base.as_deref().map(|base| option("basedir", base)));
        command
    }
}

/// Asks again and again until there is an answer, or nobody left to give one.
fn wait<T>(ask: impl Fn() -> Option<T>, mut is_hopeless: impl FnMut() -> bool) -> Option<T> {
    for _ in 0..ATTEMPTS {
        if let Some(answer) = ask() {
            return Some(answer);
        }
        if is_hopeless() {
            return None;
        }
        thread::sleep(BETWEEN_ATTEMPTS);
    }
    None
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

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn line(programs: Programs) -> String {
        let server_dir = ServerDir::new(PathBuf::from("/somewhere"), "nobody").unwrap();
        by_hand(&MySqlServer::new(programs, server_dir).launcher(33069))
    }

    #[test]
    fn only_mysql_is_told_what_only_mysql_knows() {
        let usr = Path::new("/tree/usr");

        assert!(line(Programs::mysql(usr)).contains("--mysqlx=OFF"));
        assert!(!line(Programs::mariadb(usr)).contains("--mysqlx"));
    }

    #[test]
    fn a_server_reads_nobodys_configuration() {
        let line = line(Programs::mariadb(Path::new("/tree/usr")));

        // The option counts in the first place only.
        assert!(line.contains("/tree/usr/sbin/mariadbd --no-defaults "), "{line}");
        assert!(line.contains(" --basedir=/tree/usr "), "{line}");
    }

    #[test]
    fn the_tests_get_the_database_their_url_names() {
        assert!(PREPARE.contains(&format!("create database if not exists {DATABASE};")));
    }

    #[test]
    fn waiting_ends_with_hope() {
        let none = wait(|| None::<()>, || true);

        assert_eq!(none, None);
    }
}
