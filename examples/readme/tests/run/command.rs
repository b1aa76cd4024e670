//! The commands that the README tells its reader to run.

use std::path::Path;

use crate::document::{blocks, spans};

#[test]
fn every_command_is_an_example_whose_output_is_tested() {
    let lines: Vec<String> =
        blocks("sh").iter().flat_map(|block| block.lines()).map(str::to_owned).collect();
    let runs = spans().into_iter().filter(|span| span.starts_with("cargo run"));
    let commands = lines.into_iter().chain(runs);
    let commands = commands.filter(|line| !line.starts_with("cargo xtask test"));

    let mut packages = Vec::new();
    for command in commands {
        let package = command.strip_prefix("cargo run -p ");
        let package = package.and_then(|rest| rest.split_whitespace().next());
        packages.push(package.unwrap_or_else(|| panic!("no test runs `{command}`")).to_owned());
    }

    packages.sort();
    packages.dedup();
    assert_eq!(
        packages,
        ["axum-orders", "ordered", "quickstart", "retry-and-replay", "two-databases"]
    );
    for package in packages {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(&package);
        let test = std::fs::read_to_string(file.join("tests/run.rs")).unwrap_or_default();
        let program = format!("CARGO_BIN_EXE_{package}");
        assert!(test.contains(&program), "examples/{package}/tests/run.rs does not run it");
    }
}
