//! Every scenario at its smallest: checks the guarantees, not the speeds.

use clap::ValueEnum as _;
use nemesis::deployment::Server;
use nemesis::finding::{Verdict, text};
use nemesis::process::Program;
use nemesis::scenario::{RunOptions, Scale, Scenario};
use pillarbox::{Clock as _, SystemClock};

/// A test `scenario::NAME::SERVER` for each scenario and server.
macro_rules! scenarios {
    ($($scenario:ident: $($server:ident)*;)*) => {$(
        mod $scenario {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $server() {
                    crate::guarantees_hold(stringify!($scenario), stringify!($server)).await;
                }
            )*
        }
    )*};
}

mod scenario {
    scenarios! {
        process_faults: postgres mysql sqlite;
        no_faults: postgres mysql sqlite;
        rolling_restart: postgres mysql sqlite;
        takeover: postgres mysql sqlite;
        crash_recovery: postgres mysql sqlite;
        noisy_neighbour: postgres mysql sqlite;
        pgbouncer: postgres;
        clock_skew: postgres mysql;
        memory: postgres mysql sqlite;
        large_backlog: postgres mysql sqlite;
        connection_cuts: postgres mysql;
        combined_faults: postgres mysql sqlite;
        full_disk: postgres sqlite;
        hostile_rows: postgres mysql sqlite;
    }

    #[cfg(feature = "crash-points")]
    scenarios! {
        crash_points: postgres mysql sqlite;
    }
}

async fn guarantees_hold(scenario: &str, server: &str) {
    let scenario = Scenario::from_str(scenario, false).expect("a scenario");
    let server = Server::from_str(server, false).expect("a server");
    let seed = seed();
    run(scenario, server, seed).await;
    if scenario == Scenario::HostileRows {
        // Relays claim shards with an odd seed and rows with an even one.
        run(scenario, server, seed + 1).await;
    }
}

async fn run(scenario: Scenario, server: Server, seed: u64) {
    let Some(base) = server.base() else { return };
    let options = RunOptions {
        server,
        base,
        scale: Scale::Tiny,
        seed,
        seconds: None,
        kills: None,
        relays: None,
        program: Program::new(env!("CARGO_BIN_EXE_nemesis")),
    };
    let title = format!("{}, {}, PILLARBOX_SEED={seed}", scenario.name(), server.name());
    let found = scenario.run(&options).await.unwrap_or_else(|error| panic!("{title}: {error}"));

    let is_bad = |it: Verdict| matches!(it, Verdict::Broken | Verdict::Invalid);
    let bad = found.iter().any(|finding| is_bad(finding.verdict));
    assert!(!bad, "{}", text(&title, &found));
}

/// A new seed each time, unless `PILLARBOX_SEED` sets one.
fn seed() -> u64 {
    let seed = std::env::var("PILLARBOX_SEED").ok().and_then(|seed| seed.parse().ok());
    seed.unwrap_or_else(|| SystemClock.now().unix_micros().unsigned_abs() % 1_000_000)
}
