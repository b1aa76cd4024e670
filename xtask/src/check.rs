//! Everything that is known without running a test against a server.

use crate::{
    Result,
    command::{cargo, find},
    metadata::Metadata,
    step::Steps,
};

/// The packages users depend on with a choice of features.
const FEATURED: [&str; 2] = ["pillarbox", "pillarbox-testkit"];

/// Runs every check, stopping at the first that fails.
pub(crate) fn run(steps: &mut Steps) -> Result {
    steps.run("fmt", cargo("fmt --all --check"))?;
    steps.run("clippy", cargo("clippy --workspace --all-targets --all-features -- -D warnings"))?;
    let mut doc = cargo("doc --workspace --no-deps --all-features");
    doc.env("RUSTDOCFLAGS", "-D warnings");
    steps.run("doc", doc)?;
    features_alone(steps)?;
    steps.run("rooms", cargo("test -p pillarbox --test rooms"))?;
    deny(steps)
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
