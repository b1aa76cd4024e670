//! Broken builds, one by one: what does not notice them checks nothing.
//!
//! Each mutant is a copy of the tree with a few lines changed. It is built and put through what is
//! to catch it: a show of the nemesis, or named tests.

mod list;

use std::{
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
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

/// What has not ended by then does not drain, or hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A healthy sweep takes its time.
const LONG_PATIENCE: Duration = Duration::from_secs(400);

/// `cargo xtask mutants`.
pub(crate) fn run(options: &MutantsOptions) -> Result {
    let wanted = |mutant: &&Mutant| options.names.iter().all(|name| name == mutant.name);
    let mutants: Vec<&Mutant> = MUTANTS.iter().filter(wanted).collect();
    if mutants.is_empty() {
        let names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        return Err(format!("no such mutant; there are {}", names.join(", ")).into());
    }
    let services = Services::up(options.after)?;
    let nursery = Nursery::open()?;
    nursery.control(&mutants, &services)?;
    let mut table = Table::new(["mutant", "what is broken", "caught by", "s"]);
    let mut survivors = Vec::new();
    for mutant in mutants {
        eprintln!("==> {}", mutant.name);
        let (caught, took) = nursery.breed(mutant, &services)?;
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

/// Where mutants are built: a copy of the tree, and one directory for all that is compiled.
struct Nursery {
    tree: PathBuf,
    target: PathBuf,
}

impl Nursery {
    fn open() -> Result<Self> {
        let dir = Metadata::load()?.target_directory()?.join("mutants");
        let nursery = Self { tree: dir.join("tree"), target: dir.join("target") };
        let listed = output(
            Command::new("git").args(["ls-files", "-co", "--exclude-standard"]).current_dir(root()),
        )?;
        for file in listed.lines() {
            copy(&root().join(file), &nursery.tree.join(file))?;
        }
        Ok(nursery)
    }

    /// What notices a build that is not broken notices nothing.
    fn control(&self, mutants: &[&Mutant], services: &Services) -> Result {
        let mut catches: Vec<Catch> = mutants.iter().map(|mutant| mutant.catch).collect();
        catches.dedup();
        for catch in catches {
            eprintln!("==> the tree as it is: {}", catch.name());
            if let (Some(caught), _) = self.hunt(catch, LONG_PATIENCE, services)? {
                return Err(format!("nothing is broken, and still: {caught}").into());
            }
        }
        Ok(())
    }

    /// Who caught it, if somebody did, and how long that took without the build.
    fn breed(&self, mutant: &Mutant, services: &Services) -> Result<(Option<String>, Duration)> {
        for edit in mutant.edits {
            let file = self.tree.join(edit.file);
            let changed = edit.apply(&fs::read_to_string(root().join(edit.file))?)?;
            fs::write(file, changed)?;
        }
        let caught = self.hunt(mutant.catch, PATIENCE, services);
        for edit in mutant.edits {
            fs::copy(root().join(edit.file), self.tree.join(edit.file))?;
        }
        caught
    }

    fn hunt(
        &self,
        catch: Catch,
        patience: Duration,
        services: &Services,
    ) -> Result<(Option<String>, Duration)> {
        match catch {
            Catch::Show(words) => {
                output(&mut self.cargo("build -q -p nemesis"))?;
                let mut show = Command::new(self.target.join("debug/nemesis"));
                show.arg("show").args(words);
                services.announce_to(&mut show);
                let (said, took) = ended(&mut show, patience)?;
                Ok((told(&said).map(|it| format!("{}: {it}", catch.name())), took))
            }
            Catch::Tests(name) => {
                output(&mut self.cargo("test --no-run -q -p pillarbox-testkit --all-features"))?;
                let mut tests =
                    self.cargo("nextest run -p pillarbox-testkit --all-features --retries 0");
                tests.arg(name);
                services.announce_to(&mut tests);
                let (said, took) = ended(&mut tests, patience)?;
                let failed = said.lines().find(|line| line.trim_start().starts_with("FAIL"));
                let test = failed.and_then(|line| line.split_whitespace().last());
                Ok((test.map(|test| format!("test {test}")), took))
            }
        }
    }

    fn cargo(&self, line: &str) -> Command {
        let mut command = cargo(line);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Only the crate that was changed is compiled again, and only what changed of it.
        command.env("CARGO_INCREMENTAL", "1").env("CARGO_TERM_COLOR", "never");
        command
    }
}

/// The promises that a show has found broken, or why it could not go on.
fn told(said: &str) -> Option<String> {
    let broken = said.lines().filter(|line| line.trim_end().ends_with("BROKEN"));
    let names: Vec<&str> = broken.filter_map(|line| line.trim().split("  ").next()).collect();
    let stuck = || said.lines().find_map(|line| line.strip_prefix("error: ")).map(str::to_owned);
    if names.is_empty() { stuck() } else { Some(names.join(", ")) }
}

/// Only what differs is written: cargo goes by the times of files.
fn copy(from: &Path, to: &Path) -> Result {
    let Ok(bytes) = fs::read(from) else { return Ok(()) };
    if fs::read(to).is_ok_and(|there| there == bytes) {
        return Ok(());
    }
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    Ok(fs::write(to, bytes)?)
}

/// What a command says until it ends; one that does not end in time is killed, and says so.
#[expect(clippy::disallowed_methods, reason = "processes live in real time")]
fn ended(command: &mut Command, patience: Duration) -> Result<(String, Duration)> {
    let start = Instant::now();
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let reading = thread::spawn(move || {
        let mut said = String::new();
        stdout.as_mut().map(|it| it.read_to_string(&mut said));
        said
    });
    let complaining = thread::spawn(move || {
        let mut said = String::new();
        stderr.as_mut().map(|it| it.read_to_string(&mut said));
        said
    });
    let mut is_late = false;
    while child.try_wait()?.is_none() {
        is_late = start.elapsed() > patience;
        if is_late {
            child.kill()?;
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    child.wait()?;
    let took = start.elapsed();
    let said = [reading, complaining].map(|it| it.join().unwrap_or_default()).concat();
    let late = format!("error: something is stuck after {patience:?}\n");
    Ok((if is_late { said + "\n" + &late } else { said }, took))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_show_found_is_told_by_name() {
        let said = "storm, sqlite\n  lost      3  0  BROKEN\n  kills    2  > 0  ok\n  ghosts  1  0  BROKEN\n";

        assert_eq!(told(said).as_deref(), Some("lost, ghosts"));
        assert_eq!(told("error: something is stuck\n").as_deref(), Some("something is stuck"));
        assert_eq!(told("  lost  0  0  ok\n"), None);
    }
}
