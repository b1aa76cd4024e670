//! What libFuzzer says of a run.

use std::path::PathBuf;

/// The figures of one run.
#[derive(Debug, PartialEq)]
pub(super) struct Report {
    pub(super) runs: u64,
    seconds: u64,
    /// Edges and features that were reached.
    edges: u64,
    features: u64,
    /// Inputs on which it failed.
    pub(super) found: Vec<PathBuf>,
}

impl Report {
    pub(super) const HEADER: [&str; 7] =
        ["target", "runs", "runs/s", "edges", "features", "seconds", "crashes"];

    /// Reads lines such as `#4096 pulse  cov: 120 ft: 340 …` and the statistics of the end. A run that
    /// crashes may have only some of them.
    pub(super) fn of(said: &str, found: Vec<PathBuf>) -> Self {
        let progress = said.lines().filter(|line| line.starts_with('#'));
        let counted = progress.clone().filter_map(|line| {
            line.trim_start_matches('#').split_whitespace().next()?.parse::<u64>().ok()
        });
        let most = |name: &str| {
            let values = progress.clone().filter_map(|line| after(line, name));
            values.max().unwrap_or(0)
        };
        let stated = |name: &str| said.lines().find_map(|line| after(line, name));
        let seconds = said.lines().find_map(|line| line.strip_prefix("Done ")?.split_once(" in "));
        let seconds = seconds.and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok());
        Self {
            runs: stated("stat::number_of_executed_units:").or(counted.max()).unwrap_or(0),
            seconds: seconds.unwrap_or(0),
            edges: most("cov:"),
            features: most("ft:"),
            found,
        }
    }

    pub(super) fn row(&self, target: &str) -> [String; 7] {
        let speed = self.runs.checked_div(self.seconds).map_or_else(String::new, grouped);
        [
            target.to_owned(),
            grouped(self.runs),
            speed,
            grouped(self.edges),
            grouped(self.features),
            self.seconds.to_string(),
            self.found.len().to_string(),
        ]
    }
}

/// The number that follows a word.
fn after(line: &str, word: &str) -> Option<u64> {
    let mut words = line.split_whitespace().skip_while(|it| *it != word);
    words.nth(1)?.parse().ok()
}

/// A number in groups of three digits.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|it| str::from_utf8(it).ok()).collect();
    groups.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
#2\tINITED cov: 1200 ft: 1203 corp: 1/1b exec/s: 0 rss: 40Mb
#65536\tpulse  cov: 1310 ft: 2888 corp: 41/2kb lim: 600 exec/s: 32768 rss: 90Mb
#123456\tDONE   cov: 1320 ft: 2900 corp: 42/2kb lim: 600 exec/s: 30864 rss: 90Mb
Done 123456 runs in 4 second(s)
stat::number_of_executed_units: 123456
stat::average_exec_per_sec:     30864
";

    #[test]
    fn the_figures_are_libfuzzers() {
        let row = Report::of(SAID, Vec::new()).row("row");

        assert_eq!(row, ["row", "123 456", "30 864", "1 320", "2 900", "4", "0"]);
    }

    #[test]
    fn a_run_that_crashed_has_what_it_came_to() {
        let said =
            "#2\tINITED cov: 10 ft: 12 corp: 1/1b\nthread panicked\n==1== ERROR: libFuzzer\n";

        let report = Report::of(said, vec![PathBuf::from("crash-1")]);

        assert_eq!(report.row("row"), ["row", "2", "", "10", "12", "0", "1"]);
    }
}
