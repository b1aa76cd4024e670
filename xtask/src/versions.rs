//! The suites on newer servers than the machine has.
//!
//! The servers are Debian's packages of a later release, unpacked below the temporary directory
//! and started there; the system does not notice. It takes a network and its time, so CI does not
//! run it.

mod apt;
mod page;
mod tree;

use std::{fs, path::Path};

use self::{
    page::Row,
    tree::{Tree, clear},
};
use crate::{
    Result,
    args::VersionsOptions,
    command::root,
    conformance::{Suite, Totals},
    services::{
        Home, MySql, MySqlPrograms, MySqlServer, Postgres, PostgresServer, Server, ServerDir,
        Service,
    },
    step::Steps,
    test,
};

const PAGE: &str = "docs/compatibility.md";

/// The tests with a case per backend.
const SUITES: [&str; 2] = ["conformance", "relay"];

/// One server to run the suites on.
struct Version {
    name: &'static str,
    product: Product,
    /// The Debian release that has it.
    release: &'static str,
    packages: &'static [&'static str],
    /// What is started of it, directly or by each other, below `/usr`.
    programs: &'static [&'static str],
}

enum Product {
    Postgres { programs: &'static str },
    MariaDb,
    MySql,
}

const ALL: [Version; 3] = [
    Version {
        name: "postgres-18",
        product: Product::Postgres { programs: "lib/postgresql/18/bin" },
        release: "sid",
        packages: &["postgresql-18"],
        programs: &[
            "lib/postgresql/18/bin/initdb",
            "lib/postgresql/18/bin/pg_ctl",
            "lib/postgresql/18/bin/postgres",
            "lib/postgresql/18/bin/psql",
        ],
    },
    Version {
        name: "mariadb-11.8",
        product: Product::MariaDb,
        release: "trixie",
        packages: &["mariadb-server-core", "mariadb-client-core"],
        programs: &["sbin/mariadbd", "bin/mariadb", "bin/my_print_defaults", "bin/resolveip"],
    },
    Version {
        name: "mysql-9",
        product: Product::MySql,
        release: "sid",
        packages: &["mysql-server-core", "mysql-client-core"],
        programs: &["sbin/mysqld", "bin/mysql"],
    },
];

/// `cargo xtask versions`.
pub(crate) fn run(options: &VersionsOptions) -> Result {
    let wanted = wanted(options)?;
    let home = Home::open("versions")?;
    let _only_us = home.enter_alone()?;
    Steps::default().conclude(|steps| {
        test::nextest(steps)?;
        let mut rows = Vec::new();
        let mut problems = Vec::new();
        for version in wanted {
            let result = version.run(steps, home.dir(), &mut rows);
            problems.extend(result.err().map(|error| format!("{}: {error}", version.name)));
        }
        if !rows.is_empty() {
            write_page(&rows)?;
        }
        print!("\n{}", page::table(&rows).to_text());
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n").into()) }
    })
}

fn wanted(options: &VersionsOptions) -> Result<Vec<&'static Version>> {
    let Some(only) = &options.only else { return Ok(ALL.iter().collect()) };
    let named: Vec<_> = ALL.iter().filter(|version| version.name == only).collect();
    if named.is_empty() {
        return Err(format!("no version `{only}`; there are {}", names().join(", ")).into());
    }
    Ok(named)
}

fn names() -> Vec<&'static str> {
    ALL.iter().map(|version| version.name).collect()
}

fn write_page(rows: &[Row]) -> Result {
    let file = root().join(PAGE);
    let cannot = |act: &str, error: std::io::Error| format!("cannot {act} {PAGE}: {error}");
    let page = fs::read_to_string(&file).map_err(|error| cannot("read", error))?;
    let page = page::updated(&page, &names(), rows)?;
    Ok(fs::write(&file, page).map_err(|error| cannot("write", error))?)
}

impl Version {
    /// Fetches the server, starts it and runs the suites on it; adds its row, whatever that says.
    fn run(&self, steps: &mut Steps, home: &Path, rows: &mut Vec<Row>) -> Result {
        let dir = home.join(self.name);
        fs::create_dir_all(&dir)?;
        let tree = steps.time(&format!("{}: fetch", self.name), || self.tree(&dir))?;
        let running = steps.time(&format!("{}: server", self.name), || {
            let dir = dir.join("server");
            Running::start(self.server(&tree, &dir)?, &dir)
        })?;
        eprintln!("{} says it is {}", self.name, running.version);
        steps.time(&format!("{}: suites", self.name), || {
            let totals = self.suites(&running)?;
            rows.push(Row::new(self.name, &running.version, totals));
            if totals.failed == 0 { Ok(()) } else { Err(failures(totals).into()) }
        })
    }

    fn tree(&self, dir: &Path) -> Result<Tree> {
        let tree = Tree::fetch(dir, self.release, self.packages)?;
        tree.wrap(self.programs)?;
        Ok(tree)
    }

    fn server(&self, tree: &Tree, dir: &Path) -> Result<Box<dyn Server>> {
        let usr = tree.usr();
        // No package made a user for this one.
        let server_dir = ServerDir::new(dir.to_owned(), "nobody")?;
        Ok(match self.product {
            Product::Postgres { programs } => {
                Box::new(PostgresServer::new(usr.join(programs), server_dir))
            }
            Product::MariaDb => {
                Box::new(MySqlServer::new(MySqlPrograms::mariadb(&usr), server_dir))
            }
            Product::MySql => Box::new(MySqlServer::new(MySqlPrograms::mysql(&usr), server_dir)),
        })
    }

    fn suites(&self, running: &Running) -> Result<Totals> {
        let service = self.product.service();
        let mut suite = Suite::new(&SUITES)?;
        let filter = format!("test(/(^|::){}::/)", service.name());
        suite.command().args(["-E", &filter]).env("PILLARBOX_REQUIRE", service.name());
        suite.command().env(service.variable(), &running.url);
        let results = suite.run()?;
        let report = results.report();
        report.skips().for_each(|skip| eprintln!("{skip}"));
        Ok(report.totals())
    }
}

fn failures(totals: Totals) -> String {
    format!("{} failed; what they said is above the tables", totals.failed)
}

impl Product {
    const fn service(&self) -> &'static dyn Service {
        match self {
            Self::Postgres { .. } => &Postgres,
            Self::MariaDb | Self::MySql => &MySql,
        }
    }
}

/// A server that runs for as long as this value lives.
struct Running {
    server: Box<dyn Server>,
    url: String,
    version: String,
}

impl Running {
    /// Starts with no data; what the last run left stays until now, for those who look into it.
    fn start(server: Box<dyn Server>, dir: &Path) -> Result<Self> {
        if server.url().is_some() {
            server.stop()?;
        }
        clear(dir)?;
        let url = server.start()?;
        let mut running = Self { server, url, version: String::new() };
        running.version = running.server.version()?;
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.server.stop() {
            eprintln!("warning: the server may still run: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_answered_with_the_known_ones() {
        let options = VersionsOptions { only: Some("oracle-23".to_owned()) };

        let error = wanted(&options).err().unwrap();

        assert_eq!(
            error.to_string(),
            "no version `oracle-23`; there are postgres-18, mariadb-11.8, mysql-9"
        );
    }
}
