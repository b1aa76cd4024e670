//! Packages of another Debian release, fetched past the system's own.
//!
//! apt is told of lists, a cache and a state that are not the system's, in which nothing is
//! installed: what it then downloads for a package is all that the package needs, down to the C
//! library. Nothing of it is installed.

use std::{
    fs,
    io::stderr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    Result,
    command::{by_hand, find, output},
};

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What apt keeps while packages are fetched, in a directory of ours.
#[derive(Debug)]
pub(super) struct Apt {
    dir: PathBuf,
}

impl Apt {
    /// Sets apt up for one release, on the mirror that the machine's own packages come from.
    pub(super) fn new(dir: PathBuf, release: &str) -> Result<Self> {
        if let Some(tool) = ["apt-get", "dpkg"].into_iter().find(|tool| find(tool).is_none()) {
            return Err(format!("{tool} is missing: the servers are Debian's packages").into());
        }
        let mirror = mirror()?;
        for part in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(part))?;
        }
        fs::write(dir.join("state/status"), "")?;
        let source = format!("deb [signed-by={KEYRING}] {mirror} {release} main\n");
        fs::write(dir.join("sources.list"), source)?;
        Ok(Self { dir })
    }

    /// Downloads the packages with everything they need, and returns the files.
    pub(super) fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.run(&["update"])?;
        let install = ["install", "-y", "--no-install-recommends", "--download-only"];
        self.run(&[&install, packages].concat())?;
        let files = fs::read_dir(self.dir.join("cache/archives"))?;
        let files = files.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
        Ok(files.into_iter().filter(|file| file.extension().is_some_and(|e| e == "deb")).collect())
    }

    fn run(&self, args: &[&str]) -> Result {
        let mut command = Command::new("apt-get");
        command.args(["-q", "-o", "Dir::Etc::sourceparts=-", "-o", "Acquire::Languages=none"]);
        for (name, part) in [
            ("Dir::State", "state"),
            ("Dir::State::status", "state/status"),
            ("Dir::Cache", "cache"),
            ("Dir::Etc::sourcelist", "sources.list"),
        ] {
            command.arg("-o").arg(format!("{name}={}", self.dir.join(part).display()));
        }
        command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null()).stdout(stderr());
        let line = by_hand(&command);
        let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
        if !status.success() {
            return Err(format!("`{line}` failed ({status})").into());
        }
        Ok(())
    }
}

/// The mirror of Debian that this machine is set up with.
fn mirror() -> Result<String> {
    let mut targets = Command::new("apt-get");
    targets.args(["indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)"]);
    let targets = output(targets.arg("Created-By: Packages"))?;
    let advice = "apt knows no mirror of Debian here; if it has one, run `apt-get update` once";
    Ok(mirror_among(&targets).ok_or(advice)?.to_owned())
}

/// The first address that serves Debian itself, and not its security updates or somebody's extras.
fn mirror_among(targets: &str) -> Option<&str> {
    targets.lines().find_map(|line| line.strip_prefix("Debian|Debian|"))
}

/// Unpacks packages into a directory, as if that were the root of a system.
pub(super) fn unpack(files: &[PathBuf], root: &Path) -> Result {
    for file in files {
        output(Command::new("dpkg").arg("-x").arg(file).arg(root))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_one_of_debian_itself() {
        let targets = "\
Debian|Debian-Security|http://mirror.example/debian-security/
vendor|vendor|http://vendor.example/apt/
Debian|Debian|http://mirror.example/debian/
Debian|Debian|http://other.example/debian/
";

        assert_eq!(mirror_among(targets), Some("http://mirror.example/debian/"));
        assert_eq!(mirror_among("vendor|vendor|http://vendor.example/apt/\n"), None);
    }
}
