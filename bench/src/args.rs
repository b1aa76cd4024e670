//! What was asked for, read from the command line.

use std::path::PathBuf;

use crate::{Result, scale::Scale};

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) scale: Scale,
    pub(crate) json: Option<PathBuf>,
    /// Only this benchmark; all of them when there is none.
    only: Option<String>,
    /// Only these stores; all of them when there is none.
    pub(crate) stores: Vec<String>,
    /// Only cases whose name has one of these; all of them when there is none.
    pub(crate) words: Vec<String>,
    /// Where the programs of other systems are, as `cargo xtask bench` writes it down.
    pub(crate) peers: Option<PathBuf>,
}

/// What can be benchmarked.
const BENCHMARKS: [&str; 4] = ["store", "relay", "peers", "growth"];
/// What is only done by name: it takes other people's programs, or long.
const BY_NAME: [&str; 2] = ["peers", "growth"];
/// Words that name a store, not a case.
const STORES: [&str; 3] = ["mysql", "postgres", "sqlite"];

impl Options {
    pub(crate) fn wants(&self, benchmark: &str) -> bool {
        match &self.only {
            Some(only) => only == benchmark,
            None => !BY_NAME.contains(&benchmark),
        }
    }

    pub(crate) fn wants_store(&self, store: &str) -> bool {
        // What is done by name is done on PostgreSQL.
        if self.only.as_deref().is_some_and(|only| BY_NAME.contains(&only)) {
            return store == "postgres";
        }
        self.stores.is_empty() || self.stores.iter().any(|wanted| wanted == store)
    }

    pub(crate) fn wants_case(&self, case: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| case.contains(word.as_str()))
    }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options {
        scale: Scale::FULL,
        json: None,
        only: None,
        stores: Vec::new(),
        words: Vec::new(),
        peers: None,
    };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--only" => {
                let name = args.next().ok_or("--only needs a name: --only NAME")?;
                options.only = Some(known(name)?);
            }
            "--quick" => options.scale = Scale::QUICK,
            "--json" => {
                let file = args.next().ok_or("--json needs a file: --json FILE")?;
                options.json = Some(file.into());
            }
            "--peers" => {
                let file = args.next().ok_or("--peers needs a file: --peers FILE")?;
                options.peers = Some(file.into());
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option `{flag}`").into()),
            store if STORES.contains(&store) => options.stores.push(arg),
            _ => options.words.push(arg),
        }
    }
    Ok(options)
}

fn known(benchmark: String) -> Result<String> {
    if BENCHMARKS.contains(&benchmark.as_str()) {
        return Ok(benchmark);
    }
    Err(format!("no benchmark `{benchmark}`; there are {}", BENCHMARKS.join(", ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Options {
        parse(line.split_whitespace().map(str::to_owned)).unwrap()
    }

    #[test]
    fn without_words_everything_is_wanted() {
        let options = parsed("--only store --quick");

        assert!(options.wants_store("sqlite") && options.wants_case("drain"));
    }

    #[test]
    fn what_takes_other_programs_is_done_by_name_only() {
        assert!(!parsed("--quick").wants("peers") && parsed("--quick").wants("relay"));
        assert!(parsed("--only peers").wants("peers") && !parsed("--only peers").wants("relay"));
    }

    #[test]
    fn a_word_names_a_store_or_a_part_of_a_case() {
        let options = parsed("drain sqlite --json out.json");

        assert!(options.wants_store("sqlite") && options.wants_case("drain, deleted"));
        assert!(!options.wants_store("mysql") && !options.wants_case("emit"));
    }
}
