//! A private PgBouncer in transaction mode, with fewer connections than clients.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    process::Stdio,
    time::Duration,
};

use sqlx::postgres::PgConnectOptions;
use tokio::process::{Child, Command};

use crate::Result;
use crate::scenario::wait_until;

/// A running PgBouncer, killed when it is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    /// Where to connect to; any user, any database of the server behind it.
    pub port: u16,
    _child: Child,
}

impl PgBouncer {
    /// Starts one in front of the server at this URL.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start(server: &str, dir: &Path) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let file = dir.join("pgbouncer.ini");
        fs::write(&file, settings(server, port)?)?;
        let errors = fs::File::create(dir.join("pgbouncer.err"))?;
        let mut command = Command::new("pgbouncer");
        if is_root() {
            // It refuses to run as root; the file is readable for everyone.
            command.args(["-u", "nobody"]);
        }
        command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors);
        let child = command.kill_on_drop(true).spawn()?;
        let answers = async || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        let up = wait_until(Duration::from_secs(30), answers).await;
        up.map_err(|error| format!("pgbouncer does not answer ({error}), see pgbouncer.err"))?;
        Ok(Self { port, _child: child })
    }
}

/// Whether the program is there.
pub fn is_installed() -> bool {
    let version = std::process::Command::new("pgbouncer").arg("--version").output();
    version.is_ok_and(|output| output.status.success())
}

fn settings(server: &str, port: u16) -> Result<String> {
    let options: PgConnectOptions = server.parse()?;
    let (host, back, user) = (options.get_host(), options.get_port(), options.get_username());
    // The options do not give the password away; the URL has it.
    let login = server.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    let password = login.and_then(|(login, _)| login.split_once(':')).map(|(_, word)| word);
    let password = password.map(|word| format!(" password={word}")).unwrap_or_default();
    Ok(format!(
        "[databases]\n\
         * = host={host} port={back} user={user}{password}\n\
         [pgbouncer]\n\
         listen_addr = 127.0.0.1\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = any\n\
         pool_mode = transaction\n\
         default_pool_size = 4\n\
         max_client_conn = 500\n\
         ignore_startup_parameters = extra_float_digits\n"
    ))
}

fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:\t0\t"))
}
