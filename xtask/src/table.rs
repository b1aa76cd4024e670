//! Plain tables, for a terminal and for markdown.

/// A header and rows of the same width.
#[derive(Debug)]
pub(crate) struct Table {
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(header: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { lines: vec![header.into_iter().map(Into::into).collect()] }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.lines.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether there is nothing below the header.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.len() < 2
    }

    /// Columns padded with spaces, two between them, none at the end of a line.
    pub(crate) fn to_text(&self) -> String {
        let widths = self.widths();
        self.lines
            .iter()
            .map(|line| format!("{}\n", padded(line, &widths, "  ").trim_end()))
            .collect()
    }

    pub(crate) fn to_markdown(&self) -> String {
        let widths = self.widths();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
        let (header, rows) = self.lines.split_at(1);
        let lines = header.iter().chain([&rule]).chain(rows);
        lines.map(|line| format!("| {} |\n", padded(line, &widths, " | "))).collect()
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.lines.iter().map(Vec::len).max().unwrap_or_default();
        let width = |column: usize| {
            let cells = self.lines.iter().filter_map(move |line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        (0..columns).map(width).collect()
    }
}

fn padded(cells: &[String], widths: &[usize], between: &str) -> String {
    let cells = cells.iter().zip(widths);
    cells.map(|(cell, width)| format!("{cell:width$}")).collect::<Vec<_>>().join(between)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["case", "memory", "sqlite"]);
        table.row(["claim::order", "ok", "FAIL"]);
        table.row(["é", "skip", "-"]);
        table
    }

    #[test]
    fn text_columns_line_up() {
        let expected = "\
case          memory  sqlite
claim::order  ok      FAIL
é             skip    -
";

        assert_eq!(table().to_text(), expected);
    }

    #[test]
    fn markdown_has_a_rule_below_the_header() {
        let expected = "\
| case         | memory | sqlite |
| ------------ | ------ | ------ |
| claim::order | ok     | FAIL   |
| é            | skip   | -      |
";

        assert_eq!(table().to_markdown(), expected);
    }
}
