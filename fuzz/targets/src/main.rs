//! Writes the seeds of every target into a directory each, and says the names.

#![allow(clippy::print_stdout, reason = "a command line tool answers on stdout")]

use std::{env, fs, io, path::Path};

use pillarbox_fuzz_targets::{TARGETS, Target};

fn main() -> io::Result<()> {
    let Some(place) = env::args_os().nth(1) else {
        return Err(io::Error::other("usage: pillarbox-fuzz-targets DIRECTORY"));
    };
    for target in TARGETS {
        write(&target, &Path::new(&place).join(target.name))?;
        println!("{}", target.name);
    }
    Ok(())
}

fn write(target: &Target, place: &Path) -> io::Result<()> {
    fs::create_dir_all(place)?;
    for (number, seed) in (target.seeds)().iter().enumerate() {
        fs::write(place.join(format!("seed-{number}")), seed)?;
    }
    Ok(())
}
