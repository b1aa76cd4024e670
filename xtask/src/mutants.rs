//! Mutation testing with a curated list: each mutant must be caught.
//!
//! A mutant is a copy of the tree with a few lines changed. It is built and run against the test
//! that must catch it: a scenario of `nemesis`, or tests by name.

mod list;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use self::list::{Catch, MUTANTS, Mutant};
use crate::{
    Result,
    args::MutantsOptions,
    command::{cargo, output, root},
    metadata::Metadata,
    services::Services,
    table::Table,
};

/// A run that takes longer does not drain, or hangs.
const RUN_TIMEOUT: Duration = Duration::from_secs(60);

/// The scenario `connection_cuts` takes longer on an unchanged tree.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(400);

/// `cargo xtask mutants`.
pub(crate) fn run(options: &MutantsOptions) -> Result {
    let wanted = |mutant: &&Mutant| options.name.iter().all(|name| name == mutant.name);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if mutants.is_empty() {
        let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        return Err(format!("no such mutant; there are {}", names.join(", ")).into());
    }
    let services = Services::up(options.servers)?;
    let workspace = Workspace::open()?;
    workspace.control(&mutants, &services)?;
    let mut table = Table::new(["mutant", "change", "caught by", "s"]);
    let mut survivors = Vec::new();
    for mutant in mutants {
        eprintln!("==> {}", mutant.name);
        let (caught, took) = workspace.test_mutant(mutant, &services)?;
        eprintln!("==> {}: {}", mutant.name, caught.as_deref().unwrap_or("SURVIVED"));
        let seconds = format!("{:.0}", took.as_secs_f64());
        let by = caught.unwrap_or_else(|| "SURVIVED".to_owned());
        if by == "SURVIVED" {
            survivors.push(mutant.name);
        }
        table.row([mutant.name.to_owned(), mutant.what.to_owned(), by, seconds]);
    }
    print!("{}", table.to_markdown());
    if survivors.is_empty() { Ok(()) } else { Err(format!("survived: {survivors:?}").into()) }
}

/// A copy of the tree, and its target directory.
struct Workspace {
    tree: PathBuf,
    target: PathBuf,
}

impl Workspace {
    fn open() -> Result<Self> {
        let dir = Metadata::load()?.target_directory()?.join("mutants");
        let workspace = Self { tree: dir.join("tree"), target: dir.join("target") };
        let listed = output(
            Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()),
        )?;
        for file in listed.lines() {
            copy(&root().join(file), &workspace.tree.join(file))?;
        }
        Ok(workspace)
    }

    /// Checks that nothing is caught in the unchanged tree.
    fn control(&self, mutants: &[&Mutant], services: &Services) -> Result {
        let mut catches: Vec<Catch> = mutants.iter().map(|mutant| mutant.catch).collect();
        catches.dedup();
        for catch in catches {
            eprintln!("==> unchanged tree: {}", catch.name());
            if let (Some(caught), _) = self.run_catch(catch, CONTROL_TIMEOUT, services)? {
                return Err(format!("the unchanged tree fails: {caught}").into());
            }
        }
        Ok(())
    }

    /// What caught the mutant, if anything, and how long that took without the build.
    fn test_mutant(
        &self,
        mutant: &Mutant,
        services: &Services,
    ) -> Result<(Option<String>, Duration)> {
        for edit in mutant.edits {
            let file = self.tree.join(edit.file);
            let changed = edit.apply(&fs::read_to_string(root().join(edit.file))?)?;
            fs::write(file, changed)?;
        }
        let caught = self.run_catch(mutant.catch, RUN_TIMEOUT, services);
        for edit in mutant.edits {
            fs::copy(root().join(edit.file), self.tree.join(edit.file))?;
        }
        caught
    }

    fn run_catch(
        &self,
        catch: Catch,
        timeout: Duration,
        services: &Services,
    ) -> Result<(Option<String>, Duration)> {
        match catch {
            Catch::Scenario(args) => {
                output(&mut self.cargo("build -q -p nemesis"))?;
                let mut run = Command::new(self.target.join("debug/nemesis"));
                run.arg("run").args(args);
                services.announce_to(&mut run);
                let (output_text, took) = ended(&mut run, timeout)?;
                Ok((failure(&output_text).map(|it| format!("{}: {it}", catch.name())), took))
            }
            Catch::Tests(name) => {
                output(&mut self.cargo("test --no-run -q -p pillarbox-testkit --all-features"))?;
                let mut tests =
                    self.cargo("nextest run -p pillarbox-testkit --all-features --retries 0");
                tests.arg(name);
                services.announce_to(&mut tests);
                let (output_text, took) = ended(&mut tests, timeout)?;
                let failed = output_text.lines().find(|line| line.trim_start().starts_with("FAIL"));
                let test = failed.and_then(|line| line.split_whitespace().last());
                Ok((test.map(|test| format!("test {test}")), took))
            }
        }
    }

    fn cargo(&self, line: &str) -> Command {
        let mut command = cargo(line);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Recompiles only the changed crate, and only what changed in it.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_TERM_COLOR", "never");
        command
    }
}

/// The guarantees that a scenario found broken, or why it could not finish.
fn failure(output: &str) -> Option<String> {
    let broken = output.lines().filter(|line| line.trim_end().ends_with("BROKEN"));
    let names: Vec<&str> = broken.filter_map(|line| line.trim().split("  ").next()).collect();
    let stuck = || output.lines().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned);
    if names.is_empty() { stuck() } else { Some(names.join(", ")) }
}

/// Writes a file only if it differs, because cargo compares modification times.
fn copy(from: &Path, to: &Path) -> Result {
    let Ok(bytes) = fs::read(from) else { return Ok(()) };
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    Ok(fs::write(to, bytes)?)
}

/// The output of a command; one that does not end in time is killed, and the output says so.
#[expect(clippy::disallowed_methods, reason = "processes live in real time")]
fn ended(command: &mut Command, timeout: Duration) -> Result<(String, Duration)> {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let readers = [child.stdout.take().map(reader), child.stderr.take().map(reader)];
    let mut is_late = false;
    while child.try_wait()?.is_none() {
        is_late = start.elapsed() > timeout;
        if is_late {
            child.kill()?;
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.wait()?;
    let took = start.elapsed();
    let texts = readers.into_iter().flatten().map(|reader| reader.join().unwrap_or_default());
    let mut text: String = texts.collect();
    if is_late {
        text += &format!("\nerror: something is stuck after {timeout:?}\n");
    }
    Ok((text, took))
}

/// Reads a pipe to its end, so that the process never waits for a reader.
fn reader(mut pipe: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).map_or_else(|_| String::new(), |_| text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broken_guarantees_are_reported_by_name() {
        let output = "combined_faults, sqlite\n  lost      3  0  BROKEN\n  kills    2  > 0  ok\n  ghosts  1  0  BROKEN\n";

        assert_eq!(failure(output).as_deref(), Some("lost, ghosts"));
        assert_eq!(failure("error: something is stuck\n").as_deref(), Some("something is stuck"));
        assert_eq!(failure("  lost  0  0  ok\n"), None);
    }
}
