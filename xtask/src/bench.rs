//! Benchmarks: ours beside hand-written statements, in one run on private servers.

mod against;
mod peers;
mod plot;
mod report;

use std::{fs, path::Path, process::Command};

use self::report::Report;
use crate::{
    Result,
    args::BenchOptions,
    command::{cargo, root},
    metadata::Metadata,
    services::Services,
    step::Steps,
};

const PAGE: &str = "docs/benchmarks.md";
/// The figures of the page, to which those of later runs are added.
const FIGURES: &str = "docs/benchmarks.json";
/// Pictures of them.
const PLOTS: &str = "docs/plots";

/// `cargo xtask bench`.
pub(crate) fn run(options: &BenchOptions) -> Result {
    if let Some(commit) = &options.against {
        return against::run(options, commit);
    }
    if options.report.is_empty() {
        return measure(options);
    }
    let kept = root().join(FIGURES);
    let files = kept.exists().then_some(&kept).into_iter().chain(&options.report);
    let reports = files.map(|file| load(file)).collect::<Result<Vec<_>>>()?;
    let report = reports.into_iter().reduce(Report::then).unwrap_or_default();
    write(&kept, &report.to_json()?)?;
    fs::create_dir_all(root().join(PLOTS))?;
    for plot in report.plots() {
        write(&root().join(PLOTS).join(plot.file), &plot.svg)?;
    }
    write(&root().join(PAGE), &report.to_page())
}

fn measure(options: &BenchOptions) -> Result {
    let mut steps = Steps::default();
    steps.run("build", cargo("build --release -p pillarbox-bench"))?;
    let target = Metadata::load()?.target_directory()?;
    let json = options.json.clone().unwrap_or_else(|| target.join("bench.json"));
    let is_beside_peers = options.only.as_deref() == Some("peers");
    let programs = is_beside_peers.then(|| peers::install(&mut steps, &target)).transpose()?;
    let services = Services::up(options.servers)?;

    let mut bench = Command::new(target.join("release/pillarbox-bench"));
    bench.args(options.only.iter().flat_map(|name| ["--only", name]));
    bench.args(options.quick.then_some("--quick")).arg("--json").arg(&json).args(&options.words);
    bench.args(programs.iter().flat_map(|file| [Path::new("--peers"), file]));
    services.announce_to(&mut bench);
    steps.run("bench", bench).map_err(|error| services.explain(&*error))?;

    print!("\n{}", load(&json)?.to_text());
    eprintln!("all figures: {}", json.display());
    Ok(())
}

fn load(file: &Path) -> Result<Report> {
    let json = fs::read_to_string(file);
    let json = json.map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    Report::parse(&json)
}

fn write(file: &Path, text: &str) -> Result {
    let written = fs::write(file, text);
    Ok(written.map_err(|error| format!("cannot write {}: {error}", file.display()))?)
}
