//! Every show once, as small as it can be: the promises are checked, the speeds are not.

use nemesis::place::Server;
use nemesis::process::Program;
use nemesis::show::{Scale, Set, Show};
use nemesis::table::{Verdict, text};
use pillarbox::{Clock as _, SystemClock};

macro_rules! shows {
    ($($name:ident: $show:ident on $server:ident),* $(,)?) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            promises_hold(Show::$show, Server::$server).await;
        }
    )*};
}

mod show {
    use super::*;

    shows! {
        faults_on_postgres_break_no_promise: Faults on Postgres,
        faults_on_mysql_break_no_promise: Faults on Mysql,
        faults_on_sqlite_break_no_promise: Faults on Sqlite,
        without_a_fault_postgres_delivers_once: Calm on Postgres,
        without_a_fault_mysql_delivers_once: Calm on Mysql,
        without_a_fault_sqlite_delivers_once: Calm on Sqlite,
        rolling_restarts_on_postgres_deliver_once: Rolling on Postgres,
        rolling_restarts_on_mysql_deliver_once: Rolling on Mysql,
        rolling_restarts_on_sqlite_deliver_once: Rolling on Sqlite,
        a_killed_relay_on_postgres_has_an_heir: Takeover on Postgres,
        a_killed_relay_on_mysql_has_an_heir: Takeover on Mysql,
        a_killed_relay_on_sqlite_has_an_heir: Takeover on Sqlite,
        a_lone_relay_on_postgres_goes_on_after_a_kill: Restart on Postgres,
        a_lone_relay_on_mysql_goes_on_after_a_kill: Restart on Mysql,
        a_lone_relay_on_sqlite_goes_on_after_a_kill: Restart on Sqlite,
        trouble_on_postgres_stops_no_other: Neighbour on Postgres,
        trouble_on_mysql_stops_no_other: Neighbour on Mysql,
        trouble_on_sqlite_stops_no_other: Neighbour on Sqlite,
        a_pooler_in_front_of_postgres_changes_nothing: Pooler on Postgres,
        clocks_apart_change_nothing_on_postgres: Clocks on Postgres,
        clocks_apart_change_nothing_on_mysql: Clocks on Mysql,
        a_slow_listener_on_postgres_hears_everything_once: Memory on Postgres,
        a_slow_listener_on_mysql_hears_everything_once: Memory on Mysql,
        a_slow_listener_on_sqlite_hears_everything_once: Memory on Sqlite,
        a_backlog_on_postgres_starts: Backlog on Postgres,
        a_backlog_on_mysql_starts: Backlog on Mysql,
        a_backlog_on_sqlite_starts: Backlog on Sqlite,
        every_answer_of_postgres_may_be_lost: Sweep on Postgres,
        every_answer_of_mysql_may_be_lost: Sweep on Mysql,
        a_storm_on_postgres_breaks_no_promise: Storm on Postgres,
        a_storm_on_mysql_breaks_no_promise: Storm on Mysql,
        a_storm_on_sqlite_breaks_no_promise: Storm on Sqlite,
        a_full_disk_under_postgres_breaks_no_promise: Disk on Postgres,
        a_full_disk_under_sqlite_breaks_no_promise: Disk on Sqlite,
        a_hostile_table_on_postgres_breaks_no_promise: Hostile on Postgres,
        a_hostile_table_on_mysql_breaks_no_promise: Hostile on Mysql,
        a_hostile_table_on_sqlite_breaks_no_promise: Hostile on Sqlite,
    }

    #[cfg(feature = "crash-points")]
    shows! {
        a_crash_at_any_point_on_postgres_breaks_no_promise: Matrix on Postgres,
        a_crash_at_any_point_on_mysql_breaks_no_promise: Matrix on Mysql,
        a_crash_at_any_point_on_sqlite_breaks_no_promise: Matrix on Sqlite,
    }
}

async fn promises_hold(show: Show, server: Server) {
    let seed = seed();
    played(show, server, seed).await;
    if show == Show::Hostile {
        // Relays claim by shards or by rows, as the seed is odd or even.
        played(show, server, seed + 1).await;
    }
}

async fn played(show: Show, server: Server, seed: u64) {
    let Some(base) = server.base() else { return };
    let program = Program::new(env!("CARGO_BIN_EXE_nemesis"));

    let (scale, seconds, kills, relays) = (Scale::Tiny, None, None, None);
    let set = Set { server, base, scale, seed, seconds, kills, relays, program };
    let title = format!("{}, {}, PILLARBOX_SEED={seed}", show.name(), server.name());
    let found = show.run(&set).await.unwrap_or_else(|error| panic!("{title}: {error}"));

    let is_bad = |it: Verdict| matches!(it, Verdict::Broken | Verdict::Void);
    let bad = found.iter().any(|finding| is_bad(finding.verdict));
    assert!(!bad, "{}", text(&title, &found));
}

/// Another one each time, unless one is to be had again.
fn seed() -> u64 {
    let named = std::env::var("PILLARBOX_SEED").ok().and_then(|seed| seed.parse().ok());
    named.unwrap_or_else(|| SystemClock.now().unix_micros().unsigned_abs() % 1_000_000)
}
