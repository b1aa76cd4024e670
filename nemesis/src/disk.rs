//! A small disk of its own, which can be filled: a file system in memory.

use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Result;

/// Enough for the tables and little more.
const SIZE: &str = "96m";

/// A file system that ends with this value.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
}

impl Disk {
    /// Mounts it on a directory; it belongs to whom `like` belongs to.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn mount(path: &Path, like: &Path) -> Result<Self> {
        let options = format!("size={SIZE},mode=0700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path))?;
        let disk = Self { path: path.to_owned() };
        run(Command::new("chown").arg("--reference").arg(like).arg(path))?;
        Ok(disk)
    }

    /// Whether there can be one here, which takes root.
    ///
    /// # Errors
    /// Why not.
    pub fn is_available() -> Result {
        let path = std::env::temp_dir().join(format!("pillarbox-disk-{}", std::process::id()));
        fs::create_dir_all(&path)?;
        let mounted = Self::mount(&path, &path).map(drop);
        fs::remove_dir(&path)?;
        mounted
    }

    /// Takes all the room that is left.
    ///
    /// # Errors
    /// When something else is wrong with it.
    pub fn fill(&self) -> Result {
        let mut filler = File::options().create(true).append(true).open(self.filler())?;
        // What is left of the last block goes byte by byte.
        for size in [64 * 1024, 512, 1] {
            let chunk = vec![0; size];
            loop {
                match filler.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::StorageFull => break,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn free(&self) -> Result {
        Ok(fs::remove_file(self.filler())?)
    }

    fn filler(&self) -> PathBuf {
        self.path.join("filler")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: a server may still have a file open.
        if let Err(error) = run(Command::new("umount").arg("-l").arg(&self.path)) {
            eprintln!("still mounted: {error}");
        }
    }
}

fn run(command: &mut Command) -> Result {
    let done = command.output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&done.stderr).trim()).into())
}
