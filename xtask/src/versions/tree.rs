//! Packages unpacked side by side, and programs that run there with libraries of their own.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::apt::{self, Apt};
use crate::{Result, command::quoted};

/// A directory that looks like the root of a system.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// The tree in `dir`, fetched unless it is there.
    pub(super) fn fetch(dir: &Path, release: &str, packages: &[&str]) -> Result<Self> {
        let root = dir.join("root");
        if root.exists() {
            eprintln!("{} is here; remove it to fetch a newer one", root.display());
            return Ok(Self { root });
        }
        let apt_dir = dir.join("apt");
        let files = Apt::new(apt_dir.clone(), release)?.download(packages)?;
        eprintln!("unpacking {} packages", files.len());
        // Unpacked beside its place, so that half of a tree is never taken for one.
        let draft = dir.join("root.new");
        clear(&draft)?;
        fs::create_dir_all(&draft)?;
        apt::unpack(&files, &draft)?;
        fs::rename(&draft, &root)?;
        clear(&apt_dir)?;
        Ok(Self { root })
    }

    pub(super) fn usr(&self) -> PathBuf {
        self.root.join("usr")
    }

    /// Makes programs run with the tree's own loader and libraries.
    ///
    /// They were built for a newer C library than this machine may have. A script takes the place
    /// of each, since the programs also start each other by these names; they find what they come
    /// with relative to the name they are started by, so the script passes its own.
    pub(super) fn wrap(&self, programs: &[&str]) -> Result {
        let loader = self.find(&["lib64", "lib"], |name| name.starts_with("ld-linux"))?;
        let libraries = self.find(&["lib"], |name| name.contains("-linux-gnu"))?;
        let script = script(&loader, &libraries);
        for program in programs {
            let program = self.usr().join(program);
            let behind = program.with_added_extension("real");
            if !behind.exists() {
                fs::rename(&program, &behind)
                    .map_err(|error| format!("no program {}: {error}", program.display()))?;
            }
            fs::write(&program, &script)?;
            fs::set_permissions(&program, fs::metadata(&behind)?.permissions())?;
        }
        Ok(())
    }

    /// The first entry below `usr` whose name fits.
    fn find(&self, dirs: &[&str], fits: impl Fn(&str) -> bool) -> Result<PathBuf> {
        let entries = dirs.iter().flat_map(|dir| fs::read_dir(self.usr().join(dir)));
        let mut entries = entries.flatten().flatten();
        let found = entries.find(|entry| entry.file_name().to_str().is_some_and(&fits));
        let root = self.root.display();
        Ok(found.ok_or_else(|| format!("{root} has no C library; remove it"))?.path())
    }
}

fn script(loader: &Path, libraries: &Path) -> String {
    let word = |path: &Path| quoted(&path.to_string_lossy());
    format!(
        "#!/bin/sh\nexec {} --argv0 \"$0\" --library-path {} \"$0.real\" \"$@\"\n",
        word(loader),
        word(libraries)
    )
}

/// Removes a directory, if it is there.
pub(super) fn clear(dir: &Path) -> Result {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(format!("cannot remove {}: {error}", dir.display()).into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::command::output;

    /// A tree whose loader does nothing but print its arguments.
    fn tree(name: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("pillarbox-{}-{name}", std::process::id()));
        let usr = root.join("usr");
        for dir in ["bin", "lib64", "lib/some-linux-gnu"] {
            fs::create_dir_all(usr.join(dir)).unwrap();
        }
        fs::write(usr.join("bin/serve"), "").unwrap();
        let loader = usr.join("lib64/ld-linux.so.2");
        fs::write(&loader, "#!/bin/sh\necho \"$@\"\n").unwrap();
        output(Command::new("chmod").arg("+x").args([&loader, &usr.join("bin/serve")])).unwrap();
        Tree { root }
    }

    #[test]
    fn a_wrapped_program_starts_through_the_trees_loader() {
        let tree = tree("wrap");

        tree.wrap(&["bin/serve"]).unwrap();
        tree.wrap(&["bin/serve"]).unwrap();

        let program = tree.usr().join("bin/serve");
        let said = output(Command::new(&program).args(["--port=1", "two words"])).unwrap();
        let (usr, program) = (tree.usr(), program.display());
        let libraries = usr.join("lib/some-linux-gnu");
        let expected = format!(
            "--argv0 {program} --library-path {} {program}.real --port=1 two words",
            libraries.display()
        );
        assert_eq!(said, expected);
        clear(&tree.root).unwrap();
    }

    #[test]
    fn a_program_that_is_not_there_is_named() {
        let tree = tree("none");

        let error = tree.wrap(&["bin/absent"]).unwrap_err();

        assert!(error.to_string().contains("usr/bin/absent"), "{error}");
        clear(&tree.root).unwrap();
    }
}
