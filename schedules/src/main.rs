//! Runs every case in many orders of its steps, and prints what was found, as a table.
//!
//! Schedules come by the block. A block is a seed; the seed says all that happens in it.

use std::cell::RefCell;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use pillarbox::schedules::{CASES, Case, ON_PURPOSE};
use shuttle::scheduler::{
    PctScheduler, RandomScheduler, Scheduler, UncontrolledNondeterminismCheckScheduler,
};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

/// Schedules in a block.
const BLOCK: usize = 100;

/// Everything comes to an end long before.
const MOST_STEPS: usize = 200_000;

const USAGE: &str = "usage: [--schedules N] [--seed S] [--block B] [word of a case…]";

thread_local! {
    static SAID: RefCell<String> = const { RefCell::new(String::new()) };
}

struct Options {
    schedules: usize,
    seed: u64,
    /// Only this one.
    block: Option<u64>,
    words: Vec<String>,
}

fn main() -> ExitCode {
    let Some(options) = options(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    listen_to_panics();
    let chosen = |case: &&Case| {
        options.words.is_empty() || options.words.iter().any(|word| case.name.contains(&**word))
    };
    let cases: Vec<&Case> = CASES.iter().filter(chosen).collect();
    let blocks = options.schedules.div_ceil(BLOCK * cases.len().max(1));
    println!("seed {}\n", options.seed);
    println!("| case | schedules | s | found |\n| --- | --- | --- | --- |");
    let mut is_well = !cases.is_empty();
    for case in cases {
        let (seed, blocks) = (options.seed, 0..blocks as u64);
        let blocks: Vec<u64> = match options.block {
            Some(block) => vec![block],
            None => blocks.map(|at| block_of(seed, at)).collect(),
        };
        // A thread of its own: one that has failed is of no more use to Shuttle.
        is_well &= std::thread::scope(|scope| {
            scope.spawn(|| explore(case, &blocks)).join().unwrap_or_default()
        });
    }
    if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn options(mut args: impl Iterator<Item = String>) -> Option<Options> {
    let seed = rand::random::<u32>().into();
    let mut options = Options { schedules: 100_000, seed, block: None, words: Vec::new() };
    while let Some(arg) = args.next() {
        match &*arg {
            "--schedules" => options.schedules = args.next()?.parse().ok()?,
            "--seed" => options.seed = args.next()?.parse().ok()?,
            "--block" => options.block = Some(args.next()?.parse().ok()?),
            flag if flag.starts_with('-') => return None,
            _ => options.words.push(arg),
        }
    }
    Some(options)
}

/// The seed of a block. The last digit of it says how the block is scheduled.
fn block_of(seed: u64, at: u64) -> u64 {
    let mixed = (seed ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 24) / 10 * 10 + at % 10
}

/// Runs a case block by block, until one of them fails.
fn explore(case: &Case, blocks: &[u64]) -> bool {
    let (begun, mut schedules) = (Instant::now(), 0);
    let mut found = "holds".to_owned();
    for block in blocks {
        let ended = run(case, *block);
        schedules += ended.as_ref().map_or_else(|failed| failed.at, |run| *run);
        if let Err(Failed { said, .. }) = ended {
            found = format!(
                "FAILED: {said}; again: `cargo xtask shuttle --block {block} \"{}\"`",
                case.name
            );
            break;
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("| {} | {schedules} | {took:.1} | {found} |", case.name);
    found == "holds"
}

struct Failed {
    /// Which schedule of the block it was.
    at: usize,
    said: String,
}

/// One block of ten is run twice, to see that a schedule is all there is to a run; of the others
/// one half is in random order, and the other by priorities that change a few times (PCT).
fn run(case: &Case, block: u64) -> Result<usize, Failed> {
    match block % 10 {
        0 => schedule(case, {
            let random = RandomScheduler::new_from_seed(block, BLOCK);
            UncontrolledNondeterminismCheckScheduler::new(random)
        }),
        depth @ (1 | 3 | 5 | 7) => {
            let depth = depth as usize;
            schedule(case, PctScheduler::new_from_seed(block, depth, BLOCK))
        }
        _ => schedule(case, RandomScheduler::new_from_seed(block, BLOCK)),
    }
}

fn schedule(case: &Case, scheduler: impl Scheduler + 'static) -> Result<usize, Failed> {
    let mut config = Config::new();
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(MOST_STEPS);
    config.stack_size = 256 * 1024;
    config.silence_warnings = true;
    let (run, at) = (case.run, Arc::new(AtomicUsize::new(0)));
    let counts = Arc::clone(&at);
    let counted = move || {
        counts.fetch_add(1, Ordering::SeqCst);
        SAID.take();
        run();
    };
    let ended =
        panic::catch_unwind(AssertUnwindSafe(|| Runner::new(scheduler, config).run(counted)));
    ended.map(|_| BLOCK).map_err(|_| {
        let said = Some(SAID.take()).filter(|said| !said.is_empty());
        let said = said.unwrap_or_else(|| format!("a panic {ON_PURPOSE} went through"));
        Failed { at: at.load(Ordering::SeqCst), said }
    })
}

/// Keeps what the first panic of a schedule said, but for those of listeners that are told to: the
/// others follow from it. Shuttle sets a hook at its first run that would print them all.
fn listen_to_panics() {
    Runner::new(RandomScheduler::new(1), Config::new()).run(|| {});
    panic::set_hook(Box::new(|panic| {
        if panic.payload().downcast_ref::<String>().is_some_and(|it| it == ON_PURPOSE) {
            return;
        }
        let said = panic.to_string().replace('\n', " ");
        SAID.with_borrow_mut(|first| {
            if first.is_empty() {
                *first = said;
            }
        });
    }));
}
