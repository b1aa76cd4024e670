//! Getting the programs the servers and the tests start.

use std::{
    io::stderr,
    process::{Command, Stdio},
};

use super::{Service, home::user};
use crate::{
    Result,
    command::{by_hand, find},
};

/// Programs the tests themselves start, and the Debian packages they come from.
pub(super) const TOOLS: [(&str, &str); 4] = [
    ("psql", "postgresql-client"),
    ("sqlite3", "sqlite3"),
    ("faketime", "faketime"),
    ("pgbouncer", "pgbouncer"),
];

/// Installs what is missing where we may, or says what to install.
pub(super) fn ensure(wanted: &[&dyn Service]) -> Result {
    let absent: Vec<_> =
        wanted.iter().copied().filter(|service| service.missing_package().is_some()).collect();
    let servers = absent.iter().filter_map(|service| service.missing_package());
    let tools = TOOLS.into_iter().filter(|(program, _)| find(program).is_none());
    let packages: Vec<_> = servers.chain(tools.map(|(_, package)| package)).collect();
    if packages.is_empty() {
        return Ok(());
    }
    if user()? != 0 || find("apt-get").is_none() {
        return Err(advice(&packages, &absent).into());
    }
    install(&packages).map_err(|error| format!("{error}\n{}", advice(&packages, &absent)).into())
}

fn install(packages: &[&str]) -> Result {
    eprintln!("missing, installing: {}", packages.join(" "));
    apt_get(&["update"])?;
    // Nobody's MySQL makes room for our MariaDB.
    apt_get(&[&["install", "-y", "--no-install-recommends", "--no-remove"], packages].concat())
}

fn apt_get(args: &[&str]) -> Result {
    let mut command = Command::new("apt-get");
    command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
    // Stdout belongs to the export lines of `services up`.
    command.stdin(Stdio::null()).stdout(stderr());
    let line = by_hand(&command);
    eprintln!("  {line}");
    let status = command.status().map_err(|error| format!("cannot start `{line}`: {error}"))?;
    if !status.success() {
        return Err(format!("`{line}` failed ({status})").into());
    }
    Ok(())
}

/// What a person can do about missing packages.
fn advice(packages: &[&str], absent: &[&dyn Service]) -> String {
    let packages = packages.join(" ");
    let mut advice = format!("missing: {packages}\n  sudo apt-get install {packages}");
    for service in absent {
        let (name, variable, url) = (service.name(), service.variable(), service.compose_url());
        advice += &format!(
            "\nor, for {name}, use the container of compose.yaml\
             \n  docker compose up -d\n  export {variable}={url}\
             \nor set {variable} to a server of yours"
        );
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Postgres;

    #[test]
    fn advice_names_the_packages_and_both_ways_around_them() {
        let advice = advice(&["postgresql", "sqlite3"], &[&Postgres]);

        assert!(advice.contains("sudo apt-get install postgresql sqlite3\n"));
        assert!(advice.contains("docker compose up -d\n  export PILLARBOX_POSTGRES_URL=postgres:"));
        assert!(advice.ends_with("or set PILLARBOX_POSTGRES_URL to a server of yours"));
    }

    #[test]
    fn a_missing_tool_alone_needs_no_container() {
        let advice = advice(&["sqlite3"], &[]);

        assert_eq!(advice, "missing: sqlite3\n  sudo apt-get install sqlite3");
    }
}
