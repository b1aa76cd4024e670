//! Everything that is known without running a test against a server.

use std::fs;

use crate::{
    Result,
    command::{cargo, find},
    metadata::Metadata,
    step::Steps,
};

/// The packages users depend on with a choice of features.
const FEATURED: [&str; 2] = ["pillarbox", "pillarbox-testkit"];

/// A program that depends on the library as users' programs do: with what the README lists.
const PROGRAM: &str = "readme";

/// What arms a crash point: where a program has this, a variable can kill it.
const CRASH_POINTS: &str = "PILLARBOX_CRASH_AT";

/// Runs every check, stopping at the first that fails.
pub(crate) fn run(steps: &mut Steps) -> Result {
    steps.run("fmt", cargo("fmt --all --check"))?;
    steps.run("fmt schedules", cargo("fmt --manifest-path schedules/Cargo.toml --all --check"))?;
    steps.run("clippy", cargo("clippy --workspace --all-targets --all-features -- -D warnings"))?;
    let mut doc = cargo("doc --workspace --no-deps --all-features");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("doc", doc)?;
    features_alone(steps)?;
    steps.run("module levels", cargo("test -p pillarbox --test module_levels"))?;
    crash_points(steps)?;
    deny(steps)
}

/// Crash points are for tests of the library, and in no program that did not ask for them. One that
/// did comes first: a search that never finds anything would be glad of the other, too.
fn crash_points(steps: &mut Steps) -> Result {
    let program = Metadata::load()?.target_directory()?.join("debug").join(PROGRAM);
    let with = cargo(&format!("build -p {PROGRAM} --features pillarbox/crash-points"));
    steps.run("build with crash points", with)?;
    if !has_crash_points(&fs::read(&program)?) {
        return Err(format!("{} has no {CRASH_POINTS}, and should", program.display()).into());
    }
    steps.run("build without crash points", cargo(&format!("build -p {PROGRAM}")))?;
    if has_crash_points(&fs::read(&program)?) {
        return Err(format!("{} has {CRASH_POINTS}: who asked for it?", program.display()).into());
    }
    Ok(())
}

fn has_crash_points(program: &[u8]) -> bool {
    program.windows(CRASH_POINTS.len()).any(|part| part == CRASH_POINTS.as_bytes())
}

/// A feature that leans on another without saying so breaks for the user who enables it alone.
fn features_alone(steps: &mut Steps) -> Result {
    let metadata = Metadata::load()?;
    for package in FEATURED {
        for line in feature_lines(package, &metadata.features(package)?) {
            steps.run(&line.name, cargo(&line.command))?;
        }
    }
    Ok(())
}

#[derive(Debug)]
struct Line {
    name: String,
    command: String,
}

fn feature_lines(package: &str, features: &[String]) -> Vec<Line> {
    let line = |name: &str, chosen: &str| Line {
        name: format!("{package} with {name}"),
        command: format!("clippy -p {package} --no-default-features{chosen} -- -D warnings"),
    };
    let alone = features.iter().map(|feature| line(feature, &format!(" --features {feature}")));
    std::iter::once(line("no features", "")).chain(alone).collect()
}

fn deny(steps: &mut Steps) -> Result {
    if find("cargo-deny").is_none() {
        let reason = "cargo-deny is not installed (cargo install --locked cargo-deny)";
        steps.skip("deny", reason);
        return Ok(());
    }
    // A build downloads only what this machine needs. Licenses of the other platforms' crates
    // count too, and offline those crates must be here.
    steps.run("fetch", cargo("fetch"))?;
    steps.run("deny", cargo("deny --offline check bans licenses sources"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crash_points_are_found_in_the_middle_of_a_program() {
        assert!(has_crash_points(b"\x7fELF\0PILLARBOX_CRASH_AT\0settle.before"));
        assert!(!has_crash_points(b"\x7fELF\0PILLARBOX_URL\0"));
    }

    #[test]
    fn each_feature_is_checked_alone_after_none() {
        let lines = feature_lines("pillarbox", &["macros".to_owned(), "sqlite".to_owned()]);

        let commands: Vec<&str> = lines.iter().map(|line| line.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "clippy -p pillarbox --no-default-features -- -D warnings",
                "clippy -p pillarbox --no-default-features --features macros -- -D warnings",
                "clippy -p pillarbox --no-default-features --features sqlite -- -D warnings",
            ]
        );
        assert_eq!(lines[0].name, "pillarbox with no features");
    }
}
