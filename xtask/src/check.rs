//! The checks that need no server.

use crate::{
    Result,
    command::{cargo, find, output},
    metadata::Metadata,
    step::Steps,
};

/// The packages with features that users choose.
const FEATURED: [&str; 2] = ["pillarbox", "pillarbox-testkit"];

/// A program that depends on the library as the README says.
const PROGRAM: &str = "readme";

/// The feature of the library that lets an environment variable crash the process.
const CRASH_POINTS: &str = "crash-points";

/// Runs every check, stopping at the first that fails.
pub(crate) fn run(steps: &mut Steps) -> Result {
    without_tests(steps)?;
    steps.run("module levels", cargo("test -p pillarbox --test module_levels"))
}

/// Runs the checks that are not tests.
pub(crate) fn without_tests(steps: &mut Steps) -> Result {
    steps.run("fmt", cargo("fmt --all --check"))?;
    steps.run("fmt schedules", cargo("fmt --manifest-path schedules/Cargo.toml --all --check"))?;
    steps.run("clippy", cargo("clippy --workspace --all-targets --all-features -- -D warnings"))?;
    let mut doc = cargo("doc --workspace --no-deps --all-features");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("doc", doc)?;
    features_alone(steps)?;
    steps.time("no crash points in programs", no_crash_points)?;
    deny(steps)
}

/// Crash points are for tests of the library: no program has them without asking. A program that asks
/// is looked at first, so that a question that never finds them fails.
fn no_crash_points() -> Result {
    let features = |more: &str| {
        let query = format!("tree -p {PROGRAM} -e no-dev -i pillarbox --depth 0 -f {{f}} {more}");
        output(&mut cargo(&format!("{query} --prefix none")))
    };
    if !has_crash_points(&features(&format!("--features pillarbox/{CRASH_POINTS}"))?) {
        return Err(format!("`{PROGRAM}` asked for {CRASH_POINTS} and does not have it").into());
    }
    if has_crash_points(&features("")?) {
        return Err(format!("`{PROGRAM}` has {CRASH_POINTS}: which dependency enables it?").into());
    }
    Ok(())
}

fn has_crash_points(features: &str) -> bool {
    features.split(',').any(|feature| feature.trim() == CRASH_POINTS)
}

/// A feature that needs another one without declaring it breaks for users who enable it alone.
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
    // `default` only enables other features, each of which is checked.
    let alone = features.iter().filter(|feature| *feature != "default");
    let alone = alone.map(|feature| line(feature, &format!(" --features {feature}")));
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
    fn crash_points_are_found_among_features() {
        assert!(has_crash_points("crash-points,default,sqlite"));
        assert!(!has_crash_points("default,sqlite"));
    }

    #[test]
    fn each_feature_is_checked_alone_after_none() {
        let lines = feature_lines("pillarbox", &["default", "macros", "sqlite"].map(str::to_owned));

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
