//! The figures of a run, as tables for a terminal and for the page.

pub(super) mod cell;

use serde_json::Value;

use self::cell::{Goal, each_second, number, pair, ratio, size, spread, text};
use super::plot::{Plot, plots};
use crate::{Result, table::Table};

/// The page, with a place for the figures.
const PAGE: &str = include_str!("page.md");

/// What is counted for each event, transaction or call.
const COSTS: [&str; 3] = ["server_cpu_us", "client_cpu_us", "log_bytes"];

/// What a run has found; each figure is an object of the JSON.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<Value>);

impl Report {
    pub(super) fn parse(json: &str) -> Result<Self> {
        let figures = serde_json::from_str(json);
        Ok(Self(figures.map_err(|error| format!("cannot read the figures: {error}"))?))
    }

    /// With the figures of a later run, which count where both have the same case.
    pub(super) fn then(mut self, later: Self) -> Self {
        let same = |one: &Value, other: &Value| {
            one["case"] == other["case"] && one["store"] == other["store"]
        };
        self.0.retain(|figure| !later.0.iter().any(|newer| same(figure, newer)));
        self.0.extend(later.0);
        self
    }

    pub(super) fn to_text(&self) -> String {
        let tables = self.tables();
        let parts = tables.iter().map(|(title, table)| format!("{title}\n\n{}", table.to_text()));
        let parts: Vec<String> = parts.chain(self.notes()).collect();
        parts.join("\n")
    }

    /// As [`parse`](Self::parse) reads it, with a figure on each line.
    pub(super) fn to_json(&self) -> Result<String> {
        let line = |figure: &Value| Ok(serde_json::to_string(figure)?);
        let lines = self.0.iter().map(line).collect::<Result<Vec<String>>>()?;
        Ok(format!("[\n{}\n]\n", lines.join(",\n")))
    }

    pub(super) fn to_page(&self) -> String {
        PAGE.replace("{figures}\n", self.to_markdown().trim_start())
    }

    /// Pictures for the page, which links to them.
    pub(super) fn plots(&self) -> Vec<Plot> {
        plots(&self.0)
    }

    fn to_markdown(&self) -> String {
        let servers = format!("Measured on {}.\n\n", self.servers().join(", "));
        let tables = self.tables();
        let parts =
            tables.iter().map(|(title, table)| format!("## {title}\n\n{}", table.to_markdown()));
        let parts = self.pictures().into_iter().chain(parts);
        let limits = [format!("## What the limits are\n\n{}", self.limits())];
        let notes = self.notes().map(|notes| format!("## What else was counted\n\n{notes}"));
        let parts: Vec<String> = parts.chain(limits).chain(notes).collect();
        servers + &parts.join("\n")
    }

    fn pictures(&self) -> Option<String> {
        let line = |Plot { file, title, .. }: &Plot| format!("![{title}](plots/{file})\n");
        let lines: Vec<String> = self.plots().iter().map(line).collect();
        (!lines.is_empty()).then(|| format!("## In pictures\n\n{}", lines.join("\n")))
    }

    fn tables(&self) -> Vec<(&'static str, Table)> {
        let rate = |figure: &&Value| figure["unit"] != "µs" && figure["point"].is_null();
        let time = |figure: &&Value| figure["unit"] == "µs" && figure["point"].is_null();
        let tables = [
            ("Beside hand-written statements", self.main(rate)),
            ("Beside other ways of the same rounds", self.peers()),
            ("Times", self.main(time)),
            ("As things grow: a relay / a loop by hand", self.growth()),
            ("As rows that wait grow: with them / without", self.waiting()),
            ("Costs per event, transaction or call: ours / limit", self.costs()),
            ("Costs per event or transaction of other ways", self.peer_costs()),
        ];
        tables.into_iter().filter(|(_, table)| !table.is_empty()).collect()
    }

    /// What was measured, against what, and what is wanted.
    fn main(&self, wanted: impl Fn(&&Value) -> bool) -> Table {
        let mut table = Table::new([
            "case", "store", "unit", "ours", "limit", "ratio", "spread", "goal", "met",
        ]);
        for figure in self.0.iter().filter(wanted) {
            let goal = Goal::of(&figure["goal"]);
            table.row([
                text(&figure["case"]),
                text(&figure["store"]),
                text(&figure["unit"]),
                number(&figure["ours"]),
                number(&figure["limit"]),
                ratio(&figure["ratio"]),
                spread(&figure["ratio_spread"]),
                goal.map(Goal::text).unwrap_or_default(),
                goal.map(|goal| goal.verdict(figure)).unwrap_or_default().to_owned(),
            ]);
        }
        table
    }

    fn peers(&self) -> Table {
        let mut table = Table::new([
            "case", "store", "beside", "ours", "theirs", "ratio", "spread", "goal", "met",
        ]);
        for figure in &self.0 {
            for peer in figure["peers"].as_array().into_iter().flatten() {
                let goal = Goal::of(&peer["goal"]);
                let is_absent = peer["absent"].is_string();
                let met = goal.filter(|_| !is_absent).map(|goal| goal.verdict(peer));
                table.row([
                    text(&figure["case"]),
                    text(&figure["store"]),
                    text(&peer["name"]),
                    number(&figure["ours"]),
                    if is_absent { "did not run".to_owned() } else { number(&peer["value"]) },
                    ratio(&peer["ratio"]),
                    if is_absent { String::new() } else { spread(&peer["ratio_spread"]) },
                    goal.map(Goal::text).unwrap_or_default(),
                    met.unwrap_or_default().to_owned(),
                ]);
            }
        }
        table
    }

    fn growth(&self) -> Table {
        let mut table = Table::new([
            "what grows",
            "to",
            "events/s",
            "ratio",
            "spread",
            "server CPU µs",
            "client CPU µs",
        ]);
        let is_drain =
            |figure: &&Value| figure["point"].is_object() && figure["point"]["what"].is_null();
        for figure in self.0.iter().filter(is_drain) {
            table.row([
                text(&figure["point"]["axis"]),
                size(&figure["point"]["at"]),
                format!("{} / {}", number(&figure["ours"]), number(&figure["limit"])),
                ratio(&figure["ratio"]),
                spread(&figure["ratio_spread"]),
                pair(&figure["server_cpu_us"]),
                pair(&figure["client_cpu_us"]),
            ]);
        }
        table
    }

    /// What those that wait cost the others.
    fn waiting(&self) -> Table {
        let mut table = Table::new([
            "what grows",
            "to",
            "measured",
            "unit",
            "with / without",
            "ratio",
            "spread",
            "goal",
            "met",
        ]);
        for figure in self.0.iter().filter(|figure| figure["point"]["what"].is_string()) {
            let goal = Goal::of(&figure["goal"]);
            table.row([
                text(&figure["point"]["axis"]),
                size(&figure["point"]["at"]),
                text(&figure["point"]["what"]),
                text(&figure["unit"]),
                format!("{} / {}", number(&figure["ours"]), number(&figure["limit"])),
                ratio(&figure["ratio"]),
                spread(&figure["ratio_spread"]),
                goal.map(Goal::text).unwrap_or_default(),
                goal.map(|goal| goal.verdict(figure)).unwrap_or_default().to_owned(),
            ]);
        }
        table
    }

    /// What each way of a case cost, ours first, and what follows for a server with more cores.
    fn peer_costs(&self) -> Table {
        let mut table = Table::new([
            "case",
            "way",
            "server CPU µs",
            "client CPU µs",
            "bytes logged",
            "a server core carries, 1/s",
        ]);
        for figure in &self.0 {
            let peers = figure["peers"].as_array().into_iter().flatten();
            let peers: Vec<_> = peers.filter(|peer| peer["server_cpu_us"].is_number()).collect();
            if peers.is_empty() {
                continue;
            }
            let own = [("ours", "ours"), ("the limit", "limit")]
                .map(|(name, whose)| (name.to_owned(), COSTS.map(|cost| &figure[cost][whose])));
            let others =
                peers.iter().map(|peer| (text(&peer["name"]), COSTS.map(|cost| &peer[cost])));
            for (name, [server, client, log]) in own.into_iter().chain(others) {
                let [case, core] = [text(&figure["case"]), number(&each_second(server))];
                table.row([case, name, number(server), number(client), number(log), core]);
            }
        }
        table
    }

    fn costs(&self) -> Table {
        let mut table = Table::new([
            "case",
            "store",
            "server CPU µs",
            "client CPU µs",
            "bytes logged",
            "peak MiB",
        ]);
        let has_costs = |figure: &&Value| {
            figure["point"].is_null() && COSTS.iter().any(|cost| figure[*cost].is_object())
        };
        for figure in self.0.iter().filter(has_costs) {
            let [server, client, log] = COSTS.map(|cost| pair(&figure[cost]));
            let peak = pair(&figure["peak_mib"]);
            let (case, store) = (text(&figure["case"]), text(&figure["store"]));
            table.row([case, store, server, client, log, peak]);
        }
        table
    }

    /// What was counted beside the numbers, if anything was.
    fn notes(&self) -> Option<String> {
        let lines = self.0.iter().flat_map(|figure| {
            let notes = figure["notes"].as_array().into_iter().flatten().map(text);
            let peers = figure["peers"].as_array().into_iter().flatten();
            let absent = peers.filter_map(|peer| {
                let reason = peer["absent"].as_str()?;
                Some(format!("{} did not run: {reason}", text(&peer["name"])))
            });
            notes.chain(absent).map(|note| {
                format!("- {}, {}: {note}\n", text(&figure["case"]), text(&figure["store"]))
            })
        });
        let lines: String = lines.collect();
        (!lines.is_empty()).then_some(lines)
    }

    /// Each limit once, with the cases that are measured against it.
    fn limits(&self) -> String {
        let mut limits: Vec<(String, Vec<String>)> = Vec::new();
        for figure in self.0.iter().filter(|figure| figure["point"].is_null()) {
            let (against, case) = (text(&figure["against"]), text(&figure["case"]));
            match limits.iter_mut().find(|(known, _)| *known == against) {
                Some((_, cases)) if cases.contains(&case) => {}
                Some((_, cases)) => cases.push(case),
                None => limits.push((against, vec![case])),
            }
        }
        let line = |(against, cases): &(String, Vec<String>)| {
            format!("- {}: {against}.\n", cases.join("; "))
        };
        limits.iter().map(line).collect()
    }

    fn servers(&self) -> Vec<String> {
        let mut servers: Vec<String> = Vec::new();
        for server in self.0.iter().map(|figure| text(&figure["server"])) {
            if !servers.contains(&server) {
                servers.push(server);
            }
        }
        servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str = r#"[
        { "case": "drain", "store": "postgres", "server": "PostgreSQL 15.20", "unit": "events/s",
          "ours": 123456.7, "limit": 200000.0, "ratio": 0.617, "ratio_spread": [0.6, 0.65],
          "against": "by hand",
          "goal": { "at_least": 0.6 }, "server_cpu_us": { "ours": 3.456, "limit": 2.1 },
          "peers": [{ "name": "alone", "value": 99.5, "ratio": 0.5, "ratio_spread": [0.4, 0.6],
                      "goal": { "at_least": 0.8 }, "server_cpu_us": 20.0, "log_bytes": 724.0 },
                    { "name": "gone", "absent": "no node", "goal": { "at_least": 6.0 } }] },
        { "case": "growth, keys 1000", "store": "postgres", "server": "PostgreSQL 15.20",
          "unit": "events/s", "ours": 4000.0, "limit": 8000.0, "ratio": 0.5,
          "ratio_spread": [0.4, 0.6], "server_cpu_us": { "ours": 3.0, "limit": 2.0 },
          "against": "a loop", "point": { "axis": "keys", "at": 1000 } },
        { "case": "growth, rows scheduled 1000000, idle relay", "store": "postgres",
          "server": "PostgreSQL 15.20", "unit": "% of a core", "ours": 0.5, "limit": 0.1,
          "ratio": 5.0, "ratio_spread": [5.0, 5.0], "goal": { "ours_at_most": 2.0 },
          "against": "the same where no row waits",
          "point": { "axis": "rows scheduled", "at": 1000000, "what": "idle relay" } },
        { "case": "insert", "store": "mysql", "server": "MariaDB 10.11.19", "unit": "µs",
          "ours": 4000.0, "limit": 2000.0, "ratio": 2.0, "ratio_spread": [1.9, 2.1],
          "goal": { "more_by_at_most": 5000.0 }, "notes": ["0 deadlocks"] }
    ]"#;

    fn lines(text: &str) -> Vec<&str> {
        text.lines().filter(|line| !line.is_empty()).collect()
    }

    #[test]
    fn rates_times_peers_and_costs_have_tables_of_their_own() {
        let text = Report::parse(JSON).unwrap().to_text();

        let lines = lines(&text);
        assert!(lines.contains(
            &"drain  postgres  events/s  123 457  200 000  0.62   0.60-0.65  ≥ 0.6  yes"
        ));
        assert!(lines.contains(
            &"drain  postgres  alone   123 457  99.5         0.50   0.40-0.60  ≥ 0.8  no"
        ));
        assert!(
            lines.contains(&"insert  mysql  µs    4 000  2 000  2.00   1.90-2.10  ≤ + 5000  yes")
        );
        assert!(lines.contains(&"drain  postgres  3.46 / 2.10"));
        assert!(lines.contains(&"- insert, mysql: 0 deadlocks"));
    }

    #[test]
    fn who_did_not_run_has_a_row_and_a_reason_and_meets_no_goal() {
        let text = Report::parse(JSON).unwrap().to_text();

        let row = lines(&text).into_iter().find(|line| line.contains("gone")).unwrap();
        assert_eq!(
            row.trim_end(),
            "drain  postgres  gone    123 457  did not run                    ≥ 6"
        );
        assert!(text.contains("- drain, postgres: gone did not run: no node\n"), "{text}");
    }

    #[test]
    fn what_grows_has_a_table_of_its_own_and_no_other() {
        let text = Report::parse(JSON).unwrap().to_text();

        let rows: Vec<&str> =
            lines(&text).into_iter().filter(|line| line.contains("4 000 / 8 000")).collect();
        assert_eq!(rows.len(), 1, "{text}");
        assert!(rows[0].starts_with("keys        1 000  4 000 / 8 000  0.50"), "{}", rows[0]);
        assert!(!text.contains("growth, keys"), "{text}");
    }

    #[test]
    fn what_waits_has_a_table_of_its_own_and_no_other() {
        let text = Report::parse(JSON).unwrap().to_text();

        let rows: Vec<&str> =
            lines(&text).into_iter().filter(|line| line.contains("0.50 / 0.10")).collect();
        assert_eq!(rows.len(), 1, "{text}");
        assert!(rows[0].starts_with("rows scheduled  1 000 000  idle relay"), "{}", rows[0]);
        assert!(rows[0].trim_end().ends_with("ours ≤ 2  yes"), "{}", rows[0]);
    }

    #[test]
    fn other_ways_have_their_costs_below_ours() {
        let text = Report::parse(JSON).unwrap().to_text();

        let rows = lines(&text).into_iter().filter(|line| line.starts_with("drain  ours"));
        assert_eq!(rows.count(), 1, "{text}");
        let row = lines(&text).into_iter().find(|line| line.starts_with("drain  alone")).unwrap();
        let cells: Vec<&str> =
            row.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["drain", "alone", "20.0", "724", "50 000"], "{row}");
    }

    #[test]
    fn the_later_figure_of_a_case_counts() {
        let later = JSON.replace("4000.0", "3000.0");
        let later = Report::parse(&later).unwrap();

        let both = Report::parse(JSON).unwrap().then(later).to_text();

        assert!(both.contains("3 000") && !both.contains("4 000"));
        assert_eq!(both.matches("123 457").count(), 3, "one, and one for each other way");
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let report = Report::parse(JSON).unwrap();

        let again = Report::parse(&report.to_json().unwrap()).unwrap();

        assert_eq!(again.to_page(), report.to_page());
    }

    #[test]
    fn a_table_without_a_figure_is_left_out() {
        let text = Report::parse("[]").unwrap().to_text();

        assert_eq!(text, "");
    }

    #[test]
    fn the_page_has_every_figure_and_says_what_it_was_measured_against() {
        let page = Report::parse(JSON).unwrap().to_page();

        assert!(page.starts_with("# Benchmarks\n") && !page.contains("{figures}"));
        assert!(page.contains("Measured on PostgreSQL 15.20, MariaDB 10.11.19.\n"));
        assert!(page.contains("| drain | postgres |"));
        assert!(page.contains("- drain: by hand.\n"));
        assert!(page.contains("- insert, mysql: 0 deadlocks\n"));
    }
}
