//! kill -9 of the relay, a hundred times under load: nothing lost, no ghost, no inversion.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(clippy::print_stdout, reason = "a long test shows how far it is")]

use nemesis::check::{Faults, Report};
use nemesis::log::Tail;
use nemesis::orders::{Load, Manner, Orders, Trouble, Writing};
use nemesis::place::{Place, Server};
use nemesis::process::{Process, Program};
use nemesis::settings::{MAX_UNSETTLED, hurried};
use nemesis::show::{PATIENCE, wait};
use nemesis::writer::Writers;
use pillarbox::Outbox;

const KILLS: u64 = 100;

const ACCOUNTS: i64 = 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_sqlite_lose_nothing() {
    hunt(Server::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_postgres_lose_nothing() {
    hunt(Server::Postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_mysql_lose_nothing() {
    hunt(Server::Mysql).await;
}

async fn hunt(server: Server) {
    let Some(base) = server.base() else { return };
    let place = Place::open(server, &base, "kill", ACCOUNTS).await.unwrap();
    let writing = Writing {
        accounts: ACCOUNTS,
        transactions: u64::MAX,
        writers: 4,
        batch: 1,
        rest: 2,
        first: 0,
        load: Load::Even,
    };
    let writers = Writers::start(&place.bank, &Outbox::new(), writing);
    let mut tail = Tail::open(&place.log()).unwrap();
    let mut faults = Faults::default();

    for kill in 1..=KILLS {
        let relay = relay(&place, kill);
        tail.look().unwrap();
        // Not before it delivers again: a kill of an idle relay proves nothing.
        let enough = tail.deliveries + kill * 37 % 200;
        let delivers = async || {
            tail.look()?;
            Ok(tail.deliveries > enough)
        };
        wait(PATIENCE, delivers).await.expect("the relay delivers again");
        faults.killed(relay.life());
        relay.kill().await.unwrap();
        if kill % 20 == 0 {
            println!("{kill} kills, {} deliveries", tail.deliveries);
        }
    }
    writers.stop().await.unwrap();
    let last = relay(&place, KILLS + 1);
    let drained = wait(PATIENCE, async || Ok(place.pending().await? == 0)).await;
    assert!(drained.is_ok(), "something is stuck: {:?}", place.store.stats().await);
    last.stop().await.unwrap();

    let truth = place.bank.truth().await.unwrap();
    let report = Report::of(&truth, &place.read_log().unwrap(), &faults);
    println!("{KILLS} kills: {report:?}");
    assert_eq!((report.lost, report.ghosts, report.inversions), (0, 0, 0), "{report:?}");
    assert_eq!(report.unexplained, 0, "{report:?}");
    assert!(report.worst <= MAX_UNSETTLED as usize, "{report:?}");
    assert!(report.delivered as u64 > KILLS, "the load was too light to prove anything");
    place.close().await.unwrap();
}

fn relay(place: &Place, life: u64) -> Process {
    let orders = Orders {
        url: place.url.clone(),
        log: place.log(),
        life: format!("r{life}"),
        settings: hurried(),
        listener: Manner::Plain,
        trouble: Trouble::None,
        writing: None,
        backoff: 60_000,
        ahead: 0,
    };
    let program = Program::new(env!("CARGO_BIN_EXE_nemesis"));
    program.start("relay", &orders, &place.errors()).unwrap()
}
