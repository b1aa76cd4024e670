//! The page that says what the suites said.

use crate::{Result, conformance::Totals, table::Table};

const HEADER: [&str; 5] = ["server", "version", "passed", "failed", "skipped"];
const START: &str = "<!-- written by `cargo xtask versions` -->\n";
const END: &str = "<!-- up to here -->\n";

/// What the suites said about one server.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row([String; HEADER.len()]);

impl Row {
    pub(super) fn new(server: &str, version: &str, totals: Totals) -> Self {
        let Totals { passed, failed, skipped } = totals;
        let counts = [passed, failed, skipped].map(|count| count.to_string());
        let [passed, failed, skipped] = counts;
        Self([server.to_owned(), version.to_owned(), passed, failed, skipped])
    }

    fn server(&self) -> &str {
        let [server, ..] = &self.0;
        server
    }

    /// Reads a line of the table; `None` if it is none.
    fn parse(line: &str) -> Option<Self> {
        let cells = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        let cells: Vec<String> = cells.split('|').map(|cell| cell.trim().to_owned()).collect();
        cells.try_into().ok().map(Self)
    }
}

pub(super) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(HEADER);
    for row in rows {
        table.row(row.0.clone());
    }
    table
}

/// The page with new rows; servers that did not run keep the row they have.
pub(super) fn updated(page: &str, servers: &[&str], new: &[Row]) -> Result<String> {
    let (before, rest) = page.split_once(START).ok_or_else(|| lacks(START))?;
    let (old, after) = rest.split_once(END).ok_or_else(|| lacks(END))?;
    let old: Vec<Row> = old.lines().filter_map(Row::parse).collect();
    let row_of = |server: &&str| new.iter().chain(&old).find(|row| row.server() == *server);
    let rows: Vec<Row> = servers.iter().filter_map(row_of).cloned().collect();
    Ok(format!("{before}{START}\n{}\n{END}{after}", table(&rows).to_markdown()))
}

fn lacks(marker: &str) -> String {
    format!("the page lacks the line {}", marker.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVERS: [&str; 2] = ["a-1", "b-2"];

    fn row(server: &str, version: &str) -> Row {
        Row::new(server, version, Totals { passed: 3, failed: 0, skipped: 1 })
    }

    fn page(rows: &[Row]) -> String {
        format!("# Title\n\n{START}\n{}\n{END}\nMore.\n", table(rows).to_markdown())
    }

    #[test]
    fn a_server_that_did_not_run_keeps_its_row() {
        let old = page(&[row("a-1", "1.0"), row("b-2", "2.0")]);

        let new = updated(&old, &SERVERS, &[row("b-2", "2.1 (Debian)")]).unwrap();

        assert_eq!(new, page(&[row("a-1", "1.0"), row("b-2", "2.1 (Debian)")]));
    }

    #[test]
    fn rows_have_one_order_and_no_strangers() {
        let old = page(&[row("b-2", "2.0"), row("gone-3", "3.0")]);

        let new = updated(&old, &SERVERS, &[row("a-1", "1.0")]).unwrap();

        assert_eq!(new, page(&[row("a-1", "1.0"), row("b-2", "2.0")]));
    }

    #[test]
    fn a_page_without_the_markers_is_left_alone() {
        let error = updated("# Title\n", &SERVERS, &[]).unwrap_err();

        assert!(error.to_string().contains(START.trim()), "{error}");
    }
}
