//! Who takes part, with the settings that each of them documents as its fastest.

use crate::figure::Goal;

/// Another system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    /// As its package is called.
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) language: Language,
    pub(super) settings: &'static str,
    /// It drains this part of the backlog; who is slow would take the time of all others.
    pub(super) part: u32,
    /// How many times as fast two relays should drain.
    pub(super) goal: Option<f64>,
    /// Whether plain SQL in the caller's transaction is a documented way to give it something.
    pub(super) takes_sql: bool,
}

/// What runs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Language {
    Node,
    Python,
    Rust,
}

impl Peer {
    pub(super) const fn count(&self, backlog: u32) -> u32 {
        backlog / self.part
    }

    pub(super) fn goal(&self) -> Option<Goal> {
        self.goal.map(Goal::AtLeast)
    }

    /// What the tables call it; says so when it drains less than the others.
    pub(super) fn label(&self, backlog: u32) -> String {
        let Self { name, version, settings, part, .. } = self;
        let package = match self.language {
            Language::Node => "npm",
            Language::Python => "PyPI",
            Language::Rust => "crate",
        };
        let fewer = match part {
            1 => String::new(),
            _ => format!(", {} events", self.count(backlog)),
        };
        format!("{name} {version} ({package}), {settings}{fewer}")
    }
}

pub(super) const PEERS: [Peer; 9] = [
    Peer {
        name: "graphile_worker",
        version: "0.14.1",
        language: Language::Rust,
        settings: "concurrency 500, local queue 5000",
        part: 1,
        goal: Some(5.0),
        takes_sql: false,
    },
    Peer {
        name: "graphile-worker",
        version: "0.17.3",
        language: Language::Node,
        settings: "concurrency 24, local queue 500",
        part: 1,
        goal: Some(6.0),
        takes_sql: true,
    },
    Peer {
        name: "pg-boss",
        version: "10.4.2",
        language: Language::Node,
        settings: "fetch and complete 1000, twice",
        part: 1,
        goal: Some(12.0),
        takes_sql: true,
    },
    Peer {
        name: "pgqueuer",
        version: "1.6.0",
        language: Language::Python,
        settings: "batch 500",
        part: 4,
        goal: Some(12.0),
        takes_sql: true,
    },
    Peer {
        name: "apalis-postgres",
        version: "1.0.0",
        language: Language::Rust,
        settings: "batch 500",
        part: 4,
        goal: Some(12.0),
        takes_sql: false,
    },
    Peer {
        name: "cf-gears-toolkit-db",
        version: "0.17.2",
        language: Language::Rust,
        settings: "64 partitions, high throughput",
        part: 1,
        goal: None,
        takes_sql: false,
    },
    Peer {
        name: "faststream-outbox",
        version: "0.19.0",
        language: Language::Python,
        settings: "8 workers, batch 500, flush 100",
        part: 20,
        goal: None,
        takes_sql: false,
    },
    Peer {
        name: "procrastinate",
        version: "3.10.0",
        language: Language::Python,
        settings: "concurrency 20",
        part: 100,
        goal: None,
        takes_sql: true,
    },
    Peer {
        name: "pg-transactional-outbox",
        version: "0.5.7",
        language: Language::Node,
        settings: "polling, batch 100",
        part: 400,
        goal: None,
        takes_sql: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_in_the_names_are_those_that_are_installed() {
        let node = include_str!("../../peers/node/package.json");
        let python = include_str!("../../peers/python/requirements.txt");
        let rust = include_str!("../../peers/rust/Cargo.toml");

        for Peer { name, version, language, .. } in PEERS {
            let is_pinned = match language {
                Language::Node => node.contains(&format!("\"{name}\": \"{version}\"")),
                Language::Python => python.contains(&format!("{name}=={version}\n")),
                Language::Rust => rust.lines().any(|line| {
                    line.starts_with(&format!("{name} = "))
                        && line.contains(&format!("\"={version}\""))
                }),
            };
            assert!(is_pinned, "{name} {version}");
        }
    }

    #[test]
    fn who_drains_less_says_so() {
        let label = |name| {
            let peer = PEERS.iter().find(|peer| peer.name == name);
            peer.expect("a peer of this name").label(200_000)
        };

        let (all, few) = (label("graphile_worker"), label("procrastinate"));

        assert!(all.ends_with("local queue 5000"), "{all}");
        assert!(few.ends_with("concurrency 20, 2000 events"), "{few}");
    }

    #[test]
    fn no_lock_file_names_a_registry() {
        let locks = [
            include_str!("../../peers/node/package-lock.json"),
            include_str!("../../peers/node/.npmrc"),
            include_str!("../../peers/python/requirements.txt"),
        ];

        for lock in locks {
            assert!(!lock.contains("\"resolved\"") && !lock.contains("registry="), "{lock}");
        }
        let rust = include_str!("../../peers/rust/Cargo.lock");
        let sources = rust.lines().filter(|line| line.starts_with("source = "));
        for source in sources {
            assert!(source.contains("github.com/rust-lang/crates.io-index"), "{source}");
        }
    }
}
