//! A hundred kills (SIGKILL) of relays under load: nothing is lost, no ghost is delivered, and the
//! first deliveries of every key are in order.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::sync::Arc;
use std::time::Duration;

use nemesis::check::{Faults, Report};
use nemesis::config::{Load, ProcessConfig, WriteLoad};
use nemesis::deployment::{Deployment, Server};
use nemesis::log::{Log, Tail};
use nemesis::process::{Process, Program};
use nemesis::role::Role;
use nemesis::scenario::{PROGRESS_TIMEOUT, wait_until};
use nemesis::settings::{MAX_UNSETTLED, short_lease};
use nemesis::writer::Writers;
use pillarbox::{Outbox, RelaySettings};
use tokio::task::{JoinSet, LocalSet};

const KILLS: u64 = 100;

/// Independent deployments side by side: most of a kill is waiting for the lease to lapse.
const DEPLOYMENTS: u64 = 2;

const ACCOUNTS: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_sqlite_lose_nothing() {
    kill_relays(Server::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_postgres_lose_nothing() {
    kill_relays(Server::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_mysql_lose_nothing() {
    kill_relays(Server::Mysql).await;
}

async fn kill_relays(server: Server) {
    let Some(base) = server.base() else { return };
    let run_all = async {
        let mut running = JoinSet::new();
        for number in 0..DEPLOYMENTS {
            let base = base.clone();
            running.spawn_local(async move { kill_in_one(server, &base, number).await });
        }
        running.join_all().await
    };
    let deliveries: usize = LocalSet::new().run_until(run_all).await.into_iter().sum();
    assert!(deliveries as u64 > 10 * KILLS, "the load was too light to prove anything");
}

/// Kills the relays of one deployment in turn. Returns the number of events delivered.
async fn kill_in_one(server: Server, base: &str, number: u64) -> usize {
    let name = format!("kill{number}");
    let deployment = Deployment::open(server, base, &name, ACCOUNTS).await.unwrap();
    let load = WriteLoad {
        accounts: ACCOUNTS,
        transactions: u64::MAX,
        writers: 4,
        batch: 1,
        rest: 20,
        first: 0,
        load: Load::Even,
    };
    // Writers wait while relays on a busy machine fall behind.
    let log = Arc::new(Log::open(&deployment.log(), "writers").unwrap());
    let writers = Writers::start(&deployment.bank, &Outbox::new(), load);
    let writers = writers.told_to(&deployment.bank, log);
    let mut tail = Tail::open(&deployment.log()).unwrap();
    let mut faults = Faults::default();

    for kill in (1..=KILLS).filter(|kill| kill % DEPLOYMENTS == number) {
        let relay = relay(&deployment, kill, short_lease());
        tail.poll().unwrap();
        // Not before it delivers again: killing an idle relay proves nothing.
        let enough = tail.deliveries + kill * 37 % 200;
        let delivers = async || {
            tail.poll()?;
            Ok(tail.deliveries > enough)
        };
        wait_until(PROGRESS_TIMEOUT, delivers).await.expect("the relay delivers again");
        faults.killed(relay.incarnation());
        relay.kill().await.unwrap();
    }
    writers.stop().await.unwrap();
    // The last relay is not killed, and must not lose its lease because the machine is busy.
    let (lease, delivery_timeout) = (Duration::from_secs(5), Duration::from_secs(2));
    let patient = RelaySettings { lease, delivery_timeout, ..short_lease() };
    let last = relay(&deployment, KILLS + 1, patient);
    let drained = wait_until(PROGRESS_TIMEOUT, async || Ok(deployment.pending().await? == 0)).await;
    assert!(drained.is_ok(), "something is stuck: {:?}", deployment.store.stats().await);
    last.stop().await.unwrap();

    let committed = deployment.bank.committed().await.unwrap();
    let report = Report::of(&committed, &deployment.read_log().unwrap(), &faults);
    assert_eq!((report.lost, report.ghosts, report.inversions), (0, 0, 0), "{report:?}");
    assert_eq!(report.unexplained, 0, "{report:?}");
    assert!(report.worst <= MAX_UNSETTLED as usize, "{report:?}");
    deployment.close().await.unwrap();
    report.delivered
}

fn relay(deployment: &Deployment, number: u64, settings: RelaySettings) -> Process {
    let config = ProcessConfig::relay(deployment, &format!("r{number}"), settings);
    let program = Program::new(env!("CARGO_BIN_EXE_nemesis"));
    program.start(Role::Relay, &config, &deployment.errors()).unwrap()
}
