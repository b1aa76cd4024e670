//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::scale::Scale;

/// Measures Pillarbox beside hand-written statements in the same run.
///
/// Runs on every store it can reach: PostgreSQL at PILLARBOX_POSTGRES_URL, MySQL or MariaDB at
/// PILLARBOX_MYSQL_URL, SQLite in a file of its own.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// Runs this benchmark only; store and relay by default.
    #[arg(long, value_name = "NAME")]
    only: Option<Benchmark>,
    /// Smaller tables and fewer rounds.
    #[arg(long)]
    quick: bool,
    /// Writes the figures to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Where the programs of other systems are, as `cargo xtask bench` writes it.
    #[arg(long, value_name = "FILE")]
    pub(crate) peers: Option<PathBuf>,
    /// Stores (postgres, mysql, sqlite), or parts of the names of cases.
    words: Vec<String>,
}

/// A benchmark. `peers` and `growth` run only by name and on PostgreSQL: one takes the programs of
/// other systems, and the other takes long.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Benchmark {
    Store,
    Relay,
    Peers,
    Growth,
}

impl Benchmark {
    const fn is_by_name_only(self) -> bool {
        matches!(self, Self::Peers | Self::Growth)
    }
}

/// Words that name a store, not a case.
const STORES: [&str; 3] = ["mysql", "postgres", "sqlite"];

impl Options {
    pub(crate) const fn scale(&self) -> &'static Scale {
        if self.quick { &Scale::QUICK } else { &Scale::FULL }
    }

    pub(crate) fn wants(&self, benchmark: Benchmark) -> bool {
        self.only.map_or(!benchmark.is_by_name_only(), |only| only == benchmark)
    }

    pub(crate) fn wants_store(&self, store: &str) -> bool {
        if self.only.is_some_and(Benchmark::is_by_name_only) {
            return store == "postgres";
        }
        let mut stores = self.words.iter().filter(|word| is_store(word)).peekable();
        stores.peek().is_none() || stores.any(|wanted| wanted == store)
    }

    pub(crate) fn wants_case(&self, case: &str) -> bool {
        let mut parts = self.words.iter().filter(|word| !is_store(word)).peekable();
        parts.peek().is_none() || parts.any(|part| case.contains(part.as_str()))
    }
}

fn is_store(word: &str) -> bool {
    STORES.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Options {
        Options::parse_from(std::iter::once("bench").chain(line.split_whitespace()))
    }

    #[test]
    fn without_words_everything_is_wanted() {
        let options = parsed("--only store --quick");

        assert!(options.wants_store("sqlite") && options.wants_case("drain"));
    }

    #[test]
    fn what_takes_other_programs_is_done_by_name_only() {
        assert!(
            !parsed("--quick").wants(Benchmark::Peers) && parsed("--quick").wants(Benchmark::Relay)
        );
        assert!(
            parsed("--only peers").wants(Benchmark::Peers)
                && !parsed("--only peers").wants(Benchmark::Relay)
        );
    }

    #[test]
    fn a_word_names_a_store_or_a_part_of_a_case() {
        let options = parsed("drain sqlite --json out.json");

        assert!(options.wants_store("sqlite") && options.wants_case("drain, deleted"));
        assert!(!options.wants_store("mysql") && !options.wants_case("emit"));
    }
}
