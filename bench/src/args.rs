//! What was asked for, read from the command line.

use std::path::PathBuf;

use crate::{Result, scale::Scale};

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) scale: Scale,
    pub(crate) json: Option<PathBuf>,
    /// Only cases whose name or store has one of these; all of them when there is none.
    pub(crate) words: Vec<String>,
}

impl Options {
    pub(crate) fn wants(&self, store: &str, case: &str) -> bool {
        let wanted = |word: &String| case.contains(word.as_str()) || store == word;
        self.words.is_empty() || self.words.iter().any(wanted)
    }
}

pub(crate) fn parse(mut args: impl Iterator<Item = String>) -> Result<Options> {
    let mut options = Options { scale: Scale::FULL, json: None, words: Vec::new() };
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--quick" => options.scale = Scale::QUICK,
            "--json" => {
                let file = args.next().ok_or("--json needs a file: --json FILE")?;
                options.json = Some(file.into());
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option `{flag}`").into()),
            _ => options.words.push(arg),
        }
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Options {
        parse(line.split_whitespace().map(str::to_owned)).unwrap()
    }

    #[test]
    fn without_words_everything_is_wanted() {
        assert!(parsed("--quick").wants("sqlite", "drain"));
    }

    #[test]
    fn a_word_names_a_store_or_a_part_of_a_case() {
        let options = parsed("drain --json out.json");

        assert!(options.wants("sqlite", "drain by delete"));
        assert!(!options.wants("sqlite", "emit"));
        assert!(parsed("sqlite").wants("sqlite", "emit"));
    }
}
