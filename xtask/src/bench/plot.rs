//! Pictures of the figures: what grows, and who else drains.

mod axis;
mod bars;
mod lines;
mod svg;

use serde_json::Value;

use self::bars::{Bar, Bars};
use self::lines::{Lines, Panel, Series, Spot};

/// A picture, and where it belongs.
#[derive(Debug)]
pub(super) struct Plot {
    /// Its name below `docs/plots`.
    pub(super) file: String,
    pub(super) title: String,
    pub(super) svg: String,
}

/// What can grow: the word of the figures, and what a reader is told.
const AXES: [(&str, &str); 5] = [
    ("backlog", "events in the backlog"),
    ("keys", "keys that the events are spread over"),
    ("relays", "relays, in one process"),
    ("payload bytes", "bytes of a payload"),
    ("kept rows", "done rows kept in the table"),
];

/// Which rows can wait, likewise.
const WAITING: [(&str, &str); 3] = [
    ("rows scheduled", "rows that are scheduled for next week"),
    ("rows in retry", "rows in retry that are due later"),
    ("rows behind a held key", "rows behind a held key"),
];

/// Every picture that the figures are enough for.
pub(super) fn plots(figures: &[Value]) -> Vec<Plot> {
    let beside = figures.iter().filter_map(bars);
    let growth = AXES.iter().filter_map(|(axis, words)| growth(figures, axis, words));
    let waiting = WAITING.iter().filter_map(|(axis, words)| waiting(figures, axis, words));
    beside.chain(growth).chain(waiting).collect()
}

/// A drain as one thing grows, beside a loop by hand.
fn growth(figures: &[Value], axis: &str, words: &str) -> Option<Plot> {
    let points = points(figures, axis);
    if points.len() < 2 {
        return None;
    }
    let series = |name: &'static str, spot: &dyn Fn(&Value) -> Option<Spot>| Series {
        name,
        spots: points.iter().filter_map(|figure| spot(figure)).collect(),
    };
    let rates = [
        series("relay", &|figure| spot(figure, &figure["ours"], Some(&figure["ours_spread"]))),
        series("loop by hand", &|figure| {
            spot(figure, &figure["limit"], Some(&figure["limit_spread"]))
        }),
    ];
    let costs = ["ours", "limit"].map(|whose| {
        let name = if whose == "ours" { "relay" } else { "loop by hand" };
        series(name, &|figure| spot(figure, &figure["server_cpu_us"][whose], None))
    });
    let panels = [
        Panel { title: "events/s", series: rates.to_vec() },
        Panel { title: "server CPU, µs per event", series: costs.to_vec() },
    ];
    let title = format!("Drain by {words}");
    let svg = Lines { title: &title, words, panels: &panels }.draw();
    Some(Plot { file: format!("growth-{}.svg", axis.replace(' ', "-")), title, svg })
}

/// What others and an idle relay notice as one kind of waiting rows grows.
fn waiting(figures: &[Value], axis: &str, words: &str) -> Option<Plot> {
    let points = points(figures, axis);
    let series = |name: &'static str| {
        let its = points.iter().filter(|figure| figure["point"]["what"] == name);
        let spot = |figure: &&Value| spot(figure, &figure["ours"], Some(&figure["ours_spread"]));
        Series { name, spots: its.filter_map(spot).collect() }
    };
    let panels = [
        Panel {
            title: "commit to listener of other events, µs",
            series: vec![series("p50"), series("p99")],
        },
        Panel {
            title: "with nothing to do, % of a core",
            series: vec![series("idle relay"), series("idle server")],
        },
    ];
    if panels[0].series[0].spots.len() < 2 {
        return None;
    }
    let title = format!("Other events beside {words}");
    let svg = Lines { title: &title, words, panels: &panels }.draw();
    Some(Plot { file: format!("growth-{}.svg", axis.replace(' ', "-")), title, svg })
}

/// The figures of an axis, from the least.
fn points<'a>(figures: &'a [Value], axis: &str) -> Vec<&'a Value> {
    let mut points: Vec<&Value> =
        figures.iter().filter(|figure| figure["point"]["axis"] == axis).collect();
    points.sort_by_key(|figure| figure["point"]["at"].as_u64());
    points
}

fn spot(figure: &Value, value: &Value, spread: Option<&Value>) -> Option<Spot> {
    let (at, value) = (figure["point"]["at"].as_f64()?, value.as_f64()?);
    let end = |place: usize| spread.and_then(|spread| spread[place].as_f64()).unwrap_or(value);
    Some(Spot { at, value, least: end(0), most: end(1) })
}

/// A drain beside other systems: the longest bar is the fastest.
fn bars(figure: &Value) -> Option<Plot> {
    let case = figure["case"].as_str()?;
    if !case.ends_with("beside other systems") || figure["unit"] != "events/s" {
        return None;
    }
    let relays = case.split_whitespace().next()?;
    let plural = if relays == "1" { "relay" } else { "relays" };
    let mut bars = vec![
        Bar {
            name: format!("{relays} {plural}"),
            value: figure["ours"].as_f64()?,
            is_ours: true,
            times: None,
        },
        Bar {
            name: "loop by hand".to_owned(),
            value: figure["limit"].as_f64()?,
            is_ours: false,
            times: figure["ratio"].as_f64(),
        },
    ];
    let peers = figure["peers"].as_array().into_iter().flatten();
    bars.extend(peers.filter_map(|peer| {
        let name = peer["name"].as_str()?.split(',').next()?.to_owned();
        let (value, times) = (peer["value"].as_f64()?, peer["ratio"].as_f64());
        Some(Bar { name, value, is_ours: false, times })
    }));
    bars.sort_by(|one, other| other.value.total_cmp(&one.value));
    let title = format!("A backlog on PostgreSQL, drained by {relays} {plural} and by others");
    let svg = Bars {
        title: &title,
        words: "events/s, each scale line ten times the one before",
        bars: &bars,
    }
    .draw();
    Some(Plot { file: format!("peers-{relays}-{plural}.svg"), title, svg })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIGURES: &str = r#"[
        { "case": "growth, backlog 10000", "unit": "events/s", "ours": 50000.0, "limit": 90000.0,
          "ours_spread": [40000.0, 60000.0], "limit_spread": [80000.0, 95000.0],
          "server_cpu_us": { "ours": 9.0, "limit": 7.0 },
          "point": { "axis": "backlog", "at": 10000 } },
        { "case": "growth, backlog 1000000", "unit": "events/s", "ours": 51000.0, "limit": 91000.0,
          "ours_spread": [40000.0, 60000.0], "limit_spread": [80000.0, 95000.0],
          "server_cpu_us": { "ours": 9.5, "limit": 7.5 },
          "point": { "axis": "backlog", "at": 1000000 } },
        { "case": "growth, rows in retry 0, p50", "unit": "µs", "ours": 800.0,
          "ours_spread": [700.0, 900.0],
          "point": { "axis": "rows in retry", "at": 0, "what": "p50" } },
        { "case": "growth, rows in retry 10000, p50", "unit": "µs", "ours": 820.0,
          "ours_spread": [700.0, 900.0],
          "point": { "axis": "rows in retry", "at": 10000, "what": "p50" } },
        { "case": "2 relays drain 50000 beside other systems", "unit": "events/s",
          "ours": 80000.0, "limit": 120000.0, "peers": [
            { "name": "q & a 1.0 (npm), batch 5", "value": 9000.0, "ratio": 8.9 },
            { "name": "gone 2.0 (npm), batch 5", "absent": "no node" }] }
    ]"#;

    fn drawn() -> Vec<Plot> {
        let figures: Vec<Value> = serde_json::from_str(FIGURES).unwrap();
        plots(&figures)
    }

    #[test]
    fn there_is_a_picture_for_what_was_measured_only() {
        let files: Vec<String> = drawn().into_iter().map(|plot| plot.file).collect();

        assert_eq!(files, ["peers-2-relays.svg", "growth-backlog.svg", "growth-rows-in-retry.svg"]);
    }

    #[test]
    fn axes_and_lines_are_labelled() {
        let plots = drawn();

        let growth = &plots[1].svg;
        for label in
            ["events in the backlog", "events/s", "relay", "loop by hand", ">10 k<", ">1 M<"]
        {
            assert!(growth.contains(label), "{label}\n{growth}");
        }
    }

    #[test]
    fn lines_that_differ_from_panel_to_panel_are_named_above_each() {
        let plots = drawn();

        let waiting = &plots[2].svg;
        for label in [">p50<", ">p99<", ">idle relay<", ">idle server<", ">10 k<"] {
            assert_eq!(waiting.matches(label).count(), 1, "{label}\n{waiting}");
        }
    }

    #[test]
    fn bars_are_of_those_that_ran_with_their_names_escaped() {
        let plots = drawn();

        let bars = &plots[0].svg;
        assert!(
            bars.contains("q &amp; a 1.0 (npm)") && bars.contains("9 000 (ours × 8.9)"),
            "{bars}"
        );
        assert!(!bars.contains("gone"), "{bars}");
    }
}
