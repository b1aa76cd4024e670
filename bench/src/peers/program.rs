//! A peer's program: one order on its command line, a line of JSON for each answer.

use std::{
    fs,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::{task::JoinHandle, time::timeout};

use super::list::{Language, Peer};
use crate::{Result, event::NOTE};

/// Longer than any round of anybody; who takes longer is not waited for.
const PATIENCE: Duration = Duration::from_secs(40);

/// How each language is run, or why it cannot be.
#[derive(Debug, Deserialize)]
pub(super) struct Programs {
    node: Program,
    python: Program,
    rust: Program,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Program {
    Run(Vec<String>),
    Missing(String),
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verb {
    Fill,
    Drain,
    Listen,
}

#[derive(Debug, Serialize)]
struct Order<'a> {
    peer: &'a str,
    verb: Verb,
    url: &'a str,
    count: u32,
    note: &'a str,
}

impl Programs {
    /// As `cargo xtask bench` has written it down.
    pub(super) fn load(file: Option<&Path>) -> Result<Self> {
        let file =
            file.ok_or("peers are installed and found by `cargo xtask bench --only peers`")?;
        let json = fs::read_to_string(file);
        let json = json.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        Ok(serde_json::from_str(&json)?)
    }

    pub(super) fn start(&self, peer: &Peer, verb: Verb, url: &str, count: u32) -> Result<Running> {
        let program = match peer.language {
            Language::Node => &self.node,
            Language::Python => &self.python,
            Language::Rust => &self.rust,
        };
        let words = match program {
            Program::Run(words) => words,
            Program::Missing(reason) => return Err(reason.clone().into()),
        };
        let order = Order { peer: peer.name, verb, url, count, note: NOTE };
        let (program, words) = words.split_first().ok_or("a program without a name")?;
        let mut command = Command::new(program);
        command.args(words).arg(serde_json::to_string(&order)?).kill_on_drop(true);
        Running::start(command)
    }
}

/// A program that has got its order.
pub(super) struct Running {
    child: Child,
    tell: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
    complaints: JoinHandle<String>,
}

impl Running {
    fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start it: {error}"))?;
        let mut stderr = child.stderr.take().ok_or("no stderr")?;
        let complaints = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text).await;
            String::from_utf8_lossy(&text).into_owned()
        });
        let tell = child.stdin.take();
        let lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
        Ok(Self { child, tell, lines, complaints })
    }

    pub(super) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// The next line that is an answer.
    pub(super) async fn answer<T: DeserializeOwned>(&mut self) -> Result<T> {
        let Ok(line) = timeout(PATIENCE, self.lines.next_line()).await else {
            return Err(format!("no answer within {} s", PATIENCE.as_secs()).into());
        };
        match line? {
            Some(line) => Ok(serde_json::from_str(&line)
                .map_err(|error| format!("it said `{line}`: {error}"))?),
            None => Err(self.ended().await),
        }
    }

    /// Lets it go on.
    pub(super) async fn go(&mut self) -> Result {
        let tell = self.tell.as_mut().ok_or("it has been told to end")?;
        Ok(tell.write_all(b"go\n").await?)
    }

    /// Nothing more is wanted of it.
    pub(super) async fn end(mut self) -> Result {
        drop(self.tell.take());
        if timeout(PATIENCE, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }

    /// What to tell of a program that ended before its answer.
    async fn ended(&mut self) -> Box<dyn std::error::Error + Send + Sync> {
        let status = self.child.wait().await.ok();
        let said = (&mut self.complaints).await.unwrap_or_default();
        explain(status, &said).into()
    }
}

/// Its last words are what matters: a trace stands above them.
fn explain(status: Option<ExitStatus>, said: &str) -> String {
    let last = said.lines().rfind(|line| !line.trim().is_empty());
    let status = status.map(|status| status.to_string()).unwrap_or_default();
    format!("it ended ({status}): {}", last.unwrap_or("without a word").trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct Answer {
        handled: u32,
    }

    fn shell(script: &str) -> Running {
        let mut command = Command::new("sh");
        command.args(["-c", script]).kill_on_drop(true);
        Running::start(command).unwrap()
    }

    #[tokio::test]
    async fn an_answer_comes_after_the_word() {
        let mut running = shell(r#"read word; echo "{\"handled\": 3}"; read rest"#);

        running.go().await.unwrap();
        let answer: Answer = running.answer().await.unwrap();

        assert_eq!(answer.handled, 3);
        running.end().await.unwrap();
    }

    #[tokio::test]
    async fn a_program_that_fails_is_quoted() {
        let mut running = shell("echo trace >&2; echo 'no such table' >&2; exit 3");

        let error = running.answer::<Answer>().await.unwrap_err();

        assert!(error.to_string().contains("exit status: 3"), "{error}");
        assert!(error.to_string().ends_with("no such table"), "{error}");
    }

    #[test]
    fn a_language_that_is_missing_says_why() {
        let json = r#"{ "node": { "missing": "no node" }, "python": { "run": ["python"] },
            "rust": { "run": ["peers"] } }"#;
        let programs: Programs = serde_json::from_str(json).unwrap();
        let peer = super::super::list::PEERS.iter().find(|peer| peer.language == Language::Node);

        let started = programs.start(peer.unwrap(), Verb::Fill, "", 0);

        assert_eq!(started.err().unwrap().to_string(), "no node");
    }
}
