//! The directories of our servers, and who uses them.

use std::{
    env, fs,
    fs::{File, TryLockError},
    io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{Result, command::output};

/// A directory below the temporary one, since a server's own user cannot enter every clone.
#[derive(Debug, Clone)]
pub(crate) struct Home {
    dir: PathBuf,
}

impl Home {
    pub(crate) fn open(purpose: &str) -> Result<Self> {
        let user = user()?;
        let dir = env::temp_dir().join(format!("pillarbox-{purpose}-{user}"));
        fs::create_dir_all(&dir)
            .map_err(|error| format!("cannot create {}: {error}", dir.display()))?;
        // The name can be guessed and the temporary directory is everybody's.
        if !is_owned_by(user, &dir) {
            let dir = dir.display();
            return Err(format!("{dir} belongs to someone else; remove it or set TMPDIR").into());
        }
        Ok(Self { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Waits for the right to start or stop servers; it ends with the file.
    pub(super) fn change(&self) -> Result<File> {
        let file = self.file("change.lock")?;
        file.lock().map_err(|error| self.cannot("lock", &error))?;
        Ok(file)
    }

    /// Counts us among the users until the file is dropped, however this process ends.
    pub(super) fn enter(&self) -> Result<File> {
        let file = self.file("users.lock")?;
        file.lock_shared().map_err(|error| self.cannot("lock", &error))?;
        Ok(file)
    }

    /// Counts us as the only user; fails if there is another one.
    pub(crate) fn enter_alone(&self) -> Result<File> {
        let _changing = self.change()?;
        if self.is_in_use()? {
            return Err("another run is under way; wait for it to end, then try again".into());
        }
        self.enter()
    }

    /// Whether anybody is between `enter` and the drop of its file; ask while holding `change`.
    pub(super) fn is_in_use(&self) -> Result<bool> {
        match self.file("users.lock")?.try_lock() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(self.cannot("lock", &error)),
        }
    }

    /// Marks the servers as meant to outlive this run.
    pub(super) fn keep(&self) -> Result {
        self.file("keep").map(drop)
    }

    pub(super) fn is_kept(&self) -> bool {
        self.dir.join("keep").exists()
    }

    /// Takes the mark of `keep` away.
    pub(super) fn forget(&self) -> Result {
        match fs::remove_file(self.dir.join("keep")) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.cannot("change", &error))
            }
            _ => Ok(()),
        }
    }

    fn file(&self, name: &str) -> Result<File> {
        let mut options = File::options();
        let file = options.create(true).truncate(false).write(true).open(self.dir.join(name));
        file.map_err(|error| self.cannot("write to", &error))
    }

    fn cannot(&self, act: &str, error: &io::Error) -> Box<dyn std::error::Error> {
        format!("cannot {act} {}: {error}", self.dir.display()).into()
    }
}

/// The user's number; 0 is root.
pub(super) fn user() -> Result<u32> {
    let number = output(Command::new("id").arg("-u"))?;
    Ok(number.parse().map_err(|error| format!("`id -u` said {number:?}: {error}"))?)
}

#[cfg(unix)]
fn is_owned_by(user: u32, dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;

    fs::symlink_metadata(dir).is_ok_and(|found| found.is_dir() && found.uid() == user)
}

#[cfg(not(unix))]
fn is_owned_by(_user: u32, dir: &Path) -> bool {
    dir.is_dir()
}
