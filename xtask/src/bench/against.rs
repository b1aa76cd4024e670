//! Another commit beside this tree: both are built and measured by turns.
//!
//! Each turn runs the other commit, this tree, and the other commit once more. How far the second run of
//! the other commit is from its first says which differences mean nothing.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::Value;

use crate::{
    Result,
    args::BenchOptions,
    command::{cargo, output, root},
    metadata::Metadata,
    services::Services,
    step::Steps,
    table::Table,
};

/// A median of fewer turns would be luck.
const TURNS: usize = 9;
const QUICK_TURNS: usize = 3;

/// What is run, by its place in a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Old,
    New,
    OldAgain,
}

const WAYS: [Way; 3] = [Way::Old, Way::New, Way::OldAgain];

/// A case on a store, and whether more of its unit is better.
type Name = (String, String, String);

/// What one turn found of a case.
type Turn = BTreeMap<Name, f64>;

pub(super) fn run(options: &BenchOptions, commit: &str) -> Result {
    let mut steps = Steps::default();
    let target = Metadata::load()?.target_directory()?;
    let old = build_old(&mut steps, &target, commit)?;
    steps.run("build", cargo("build --release -p pillarbox-bench"))?;
    let new = target.join("release/pillarbox-bench");
    let services = Services::up(options.servers)?;

    let turns = if options.quick { QUICK_TURNS } else { TURNS };
    let mut found: [Vec<Turn>; 3] = Default::default();
    for turn in 0..turns {
        for at in 0..WAYS.len() {
            // Whoever comes first finds a quieter machine: they take turns at that, too.
            let way = WAYS[(turn + at) % WAYS.len()];
            let program = if way == Way::New { &new } else { &old };
            let json = target.join(format!("against-{at}.json"));
            let mut bench = Command::new(program);
            bench.args(options.only.iter().flat_map(|name| ["--only", name]));
            bench.args(["--quick", "--json"]).arg(&json).args(&options.words);
            services.announce_to(&mut bench);
            let name = format!("turn {} of {turns}, {way:?}", turn + 1);
            steps.run(&name, bench).map_err(|error| services.explain(&*error))?;
            found[way as usize].push(read(&json)?);
        }
    }
    println!("\n{}", table(&found).to_text());
    println!(
        "each figure: median (least-most) of {turns} turns; {commit} again says what is noise"
    );
    Ok(())
}

/// Checks the commit out below the target directory and builds its benchmark there.
fn build_old(steps: &mut Steps, target: &Path, commit: &str) -> Result<PathBuf> {
    let revision = format!("{commit}^{{commit}}");
    let git = |args: &[&str]| {
        let mut git = Command::new("git");
        git.current_dir(root()).args(args);
        git
    };
    let known = output(&mut git(&["rev-parse", "--verify", "--quiet", &revision]));
    let hash = known.map_err(|_| format!("`{commit}` is no commit of this repository"))?;
    let tree = target.join("against").join(&hash);
    if !tree.exists() {
        let path = tree.to_string_lossy();
        steps.run("check out", git(&["worktree", "add", "--force", "--detach", &path, &hash]))?;
    }
    let mut build = cargo("build --release -p pillarbox-bench");
    let built = target.join("against/target");
    build.current_dir(&tree).env("CARGO_TARGET_DIR", &built);
    steps.run("build the other commit", build)?;
    let program = target.join(format!("against/bench-{hash}"));
    fs::copy(built.join("release/pillarbox-bench"), &program)?;
    Ok(program)
}

fn read(json: &Path) -> Result<Turn> {
    let figures: Vec<Value> = serde_json::from_str(&fs::read_to_string(json)?)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut turn = Turn::new();
    for figure in &figures {
        let name = (text(&figure["store"]), text(&figure["case"]), text(&figure["unit"]));
        let ours = figure["ours"].as_f64().ok_or("a figure has no `ours`")?;
        turn.insert(name, ours);
    }
    Ok(turn)
}

fn table(found: &[Vec<Turn>; 3]) -> Table {
    let mut table =
        Table::new(["case", "store", "unit", "old", "new", "new / old", "old again / old", "says"]);
    let names = found[Way::Old as usize].first().into_iter().flat_map(BTreeMap::keys);
    for name in names {
        let of = |way: Way| -> Vec<f64> {
            found[way as usize].iter().filter_map(|turn| turn.get(name)).copied().collect()
        };
        let (old, new, again) = (of(Way::Old), of(Way::New), of(Way::OldAgain));
        let (Some(ratio), Some(noise)) = (Ratios::of(&new, &old), Ratios::of(&again, &old)) else {
            continue;
        };
        let (store, case, unit) = name;
        table.row([
            case.clone(),
            store.clone(),
            unit.clone(),
            format!("{:.0}", median(old)),
            format!("{:.0}", median(new)),
            ratio.to_text(),
            noise.to_text(),
            ratio.beside(&noise, unit == "µs").to_owned(),
        ]);
    }
    table
}

/// Ratios of the same turns.
#[derive(Debug)]
struct Ratios {
    median: f64,
    least: f64,
    most: f64,
}

impl Ratios {
    /// `None` where a case is not in every turn of both.
    fn of(these: &[f64], those: &[f64]) -> Option<Self> {
        if these.is_empty() || these.len() != those.len() {
            return None;
        }
        let ratios: Vec<f64> = these.iter().zip(those).map(|(this, that)| this / that).collect();
        let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
        let most = ratios.iter().copied().fold(0.0, f64::max);
        Some(Self { median: median(ratios), least, most })
    }

    fn to_text(&self) -> String {
        format!("{:.2} ({:.2}-{:.2})", self.median, self.least, self.most)
    }

    /// Only a median beyond what the same program does by itself is a difference.
    fn beside(&self, noise: &Self, less_is_better: bool) -> &'static str {
        let (worse, better) = if less_is_better {
            (self.median > noise.most, self.median < noise.least)
        } else {
            (self.median < noise.least, self.median > noise.most)
        };
        match (worse, better) {
            (true, _) => "worse",
            (_, true) => "better",
            _ => "same",
        }
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(new: [f64; 3], again: [f64; 3], less_is_better: bool) -> &'static str {
        let old = [100.0; 3];
        let noise = Ratios::of(&again, &old).unwrap();
        Ratios::of(&new, &old).unwrap().beside(&noise, less_is_better)
    }

    #[test]
    fn a_difference_is_one_beyond_the_spread_of_old_against_old() {
        let again = [95.0, 100.0, 110.0];

        assert_eq!(says([90.0, 94.0, 120.0], again, false), "worse");
        assert_eq!(says([90.0, 96.0, 94.0], again, false), "worse");
        assert_eq!(says([90.0, 96.0, 97.0], again, false), "same");
        assert_eq!(says([111.0, 112.0, 90.0], again, false), "better");
        assert_eq!(says([111.0, 112.0, 90.0], again, true), "worse");
    }

    #[test]
    fn a_case_that_is_not_in_every_turn_is_left_out() {
        assert!(Ratios::of(&[1.0], &[1.0, 2.0]).is_none() && Ratios::of(&[], &[]).is_none());
    }

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        assert_eq!(median(vec![4.0, 1.0, 3.0, 2.0]), 2.5);
    }
}
