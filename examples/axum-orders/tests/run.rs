//! The example does what it says, on both databases.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

#[test]
fn what_a_route_commits_is_told_on_sqlite() {
    Service::start(&[]).check();
}

#[tokio::test]
async fn what_a_route_commits_is_told_on_postgres() {
    let Ok(url) = std::env::var("PILLARBOX_POSTGRES_URL") else {
        let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
        assert!(!required.contains("postgres"), "set PILLARBOX_POSTGRES_URL");
        return;
    };
    // Tables of its own: a relay of another run would deliver the events of this one.
    let schema = format!("axum_orders_{}", std::process::id());
    let mut server = PgConnection::connect(&url).await.expect("the server is there");
    let create = AssertSqlSafe(format!("create schema {schema}"));
    sqlx::query(create).execute(&mut server).await.expect("a schema of its own");
    let mark = if url.contains('?') { '&' } else { '?' };

    Service::start(&[&format!("{url}{mark}options=-csearch_path%3D{schema}")]).check();

    let remove = AssertSqlSafe(format!("drop schema {schema} cascade"));
    sqlx::query(remove).execute(&mut server).await.expect("the schema is nobody else's");
}

#[test]
fn wrong_arguments_get_the_usage() {
    let run = Command::new(env!("CARGO_BIN_EXE_axum-orders")).arg("--help").output();

    let run = run.expect("the example was built with this test");
    assert!(String::from_utf8_lossy(&run.stderr).starts_with("usage: axum-orders"), "{run:?}");
}

/// The service as a process, and what it prints.
struct Service {
    process: Child,
    lines: Receiver<String>,
    address: String,
}

impl Service {
    fn start(url: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_axum-orders"));
        let spawned = command.arg("127.0.0.1:0").args(url).stdout(Stdio::piped()).spawn();
        let mut process = spawned.expect("the example was built with this test");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (told, lines) = channel();
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|it| told.send(it))
        });
        let mut service = Self { process, lines, address: String::new() };
        let first = service.line();
        let address = first.strip_prefix("listening on ").expect("it says where");
        service.address = address.to_owned();
        service
    }

    fn check(mut self) {
        assert_eq!(self.ask("POST", "/orders", "\"ada@example.com\""), "HTTP/1.1 201 Created");
        assert_eq!(self.line(), "order 1: thanks to ada@example.com");
        assert_eq!(self.ask("DELETE", "/orders/1", ""), "HTTP/1.1 204 No Content");
        assert_eq!(self.line(), "order 1: a pity");
        assert_eq!(self.ask("DELETE", "/orders/1", ""), "HTTP/1.1 404 Not Found");

        self.interrupt();
        assert_eq!(self.line(), "stopped", "and nothing was told of what found no order");
        assert!(self.process.wait().expect("it ends").success());
    }

    /// The status line of the answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer.lines().next().unwrap_or_default().to_owned()
    }

    fn interrupt(&self) {
        let kill = format!("kill -INT {}", self.process.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().expect("a shell").success());
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(180)).expect("it has more to say")
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It has ended already, unless the test has failed.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
