//! Other systems to measure against: installed below `target/`, each language by its own tool.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    Result,
    command::{cargo, find, root},
    step::Steps,
};

/// Where their programs are.
const PROGRAMS: &str = "bench/peers";

/// Installs what can be, and writes down how each language is run, or why it cannot be.
pub(super) fn install(steps: &mut Steps, target: &Path) -> Result<PathBuf> {
    let place = target.join("peers");
    fs::create_dir_all(&place)?;
    let programs = json!({
        "node": written(node(steps, &place)),
        "python": written(python(steps, &place)),
        "rust": written(rust(steps, &place)),
    });
    let file = place.join("programs.json");
    fs::write(&file, programs.to_string())?;
    Ok(file)
}

/// A program and its first words, or the reason why there is none, on one line.
fn written(program: Result<Vec<PathBuf>>) -> Value {
    match program {
        Ok(words) => json!({ "run": words }),
        Err(error) => {
            let reason = error.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
            eprintln!("left out: {reason}");
            json!({ "missing": reason })
        }
    }
}

fn node(steps: &mut Steps, place: &Path) -> Result<Vec<PathBuf>> {
    let node = wanted("node", "install Node.js 20 or newer, with npm")?;
    let npm = wanted("npm", "install npm")?;
    let here = place.join("node");
    copy(&root().join(PROGRAMS).join("node"), &here)?;
    let lock = fs::read_to_string(here.join("package-lock.json"))?;
    once(&here, &lock, || {
        let mut install = Command::new(&npm);
        install.args(["ci", "--no-fund", "--no-audit", "--loglevel=error"]).current_dir(&here);
        steps.run("peers of npm", install)
    })?;
    Ok(vec![node, here.join("run.mjs")])
}

fn python(steps: &mut Steps, place: &Path) -> Result<Vec<PathBuf>> {
    let python = wanted("python3", "install Python 3.11 or newer, with venv")?;
    let programs = root().join(PROGRAMS).join("python");
    let here = place.join("python");
    fs::create_dir_all(&here)?;
    let requirements = programs.join("requirements.txt");
    let venv = here.join("venv");
    once(&here, &fs::read_to_string(&requirements)?, || {
        let mut create = Command::new(&python);
        create.args(["-m", "venv", "--clear"]).arg(&venv);
        steps.run("a place for peers of PyPI", create)?;
        let mut install = Command::new(venv.join("bin/pip"));
        install.args(["install", "--quiet", "--disable-pip-version-check", "-r"]);
        install.arg(&requirements);
        steps.run("peers of PyPI", install)
    })?;
    // Without -B it would leave its bytecode in the tree.
    Ok(vec![venv.join("bin/python"), "-B".into(), programs.join("run.py")])
}

fn rust(steps: &mut Steps, place: &Path) -> Result<Vec<PathBuf>> {
    let here = place.join("rust");
    let mut build = cargo("build --release --locked --manifest-path");
    build.arg(root().join(PROGRAMS).join("rust/Cargo.toml")).arg("--target-dir").arg(&here);
    steps.run("peers of crates.io", build)?;
    Ok(vec![here.join("release/pillarbox-peers")])
}

fn wanted(program: &str, advice: &str) -> Result<PathBuf> {
    find(program).ok_or_else(|| format!("{program} is not on the path: {advice}").into())
}

/// Installs unless the same has been installed here before.
fn once(here: &Path, what: &str, install: impl FnOnce() -> Result) -> Result {
    let stamp = here.join("installed");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == what) {
        return Ok(());
    }
    install()?;
    Ok(fs::write(stamp, what)?)
}

/// Copies the files of a folder; what is installed beside them stays out of the tree.
fn copy(from: &Path, to: &Path) -> Result {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_language_that_is_missing_is_written_down_with_its_reason() {
        let missing = wanted("no-such-program", "install it").map(|program| vec![program]);

        let written = written(missing);

        assert_eq!(written["missing"], "no-such-program is not on the path: install it");
    }

    #[test]
    fn the_same_is_installed_once() {
        let here = std::env::temp_dir().join(format!("pillarbox-once-{}", std::process::id()));
        fs::create_dir_all(&here).unwrap();
        let mut installed = 0;
        let mut install = |what: &str| {
            once(&here, what, || {
                installed += 1;
                Ok(())
            })
        };

        install("a 1").unwrap();
        install("a 1").unwrap();
        install("a 2").unwrap();

        fs::remove_dir_all(&here).unwrap();
        assert_eq!(installed, 2);
    }
}
