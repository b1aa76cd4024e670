//! Runs a case on a backend, and says so when it cannot be run.

use std::{fs::OpenOptions, io::Write, time::Duration};

use crate::backend::{Backend, Missing, Need};

/// The limit of a case. No healthy case reaches it, on however busy a machine.
const CASE_TIMEOUT: Duration = Duration::from_secs(600);

tokio::task_local! {
    static TEST: &'static str;
}

/// Runs one case in a database of its own; the suite macros call it.
///
/// `path` is the test's path with its crate in front. The database is removed after a success and
/// kept after a panic.
///
/// # Panics
/// When the case does.
pub async fn run<B: Backend>(path: &'static str, case: impl AsyncFnOnce(&B)) {
    let test = path.split_once("::").map_or(path, |(_, test)| test);
    TEST.scope(test, Box::pin(run_in_place(test, case))).await;
}

async fn run_in_place<B: Backend>(test: &str, case: impl AsyncFnOnce(&B)) {
    match B::open(test).await {
        Ok(backend) => {
            in_time("the case", case(&backend)).await;
            in_time("closing its database (is a connection still in use?)", backend.close()).await;
        }
        Err(Missing(reason)) => skip(&reason),
    }
}

/// A case that waits for ever fails, and does not hold the others up.
async fn in_time(what: &str, work: impl Future<Output = ()>) {
    let ended = tokio::time::timeout(CASE_TIMEOUT, work).await;
    assert!(ended.is_ok(), "{what} did not end within {CASE_TIMEOUT:?}");
}

/// Records that the current test is skipped, and why; the case then returns.
///
/// # Panics
/// When the file that `PILLARBOX_SKIPS` names cannot be written.
pub fn skip(reason: &str) {
    let test = TEST.try_with(|test| *test).unwrap_or("a case of its own");
    eprintln!("skipped {test}: {reason}");
    let Some(path) = std::env::var_os("PILLARBOX_SKIPS") else { return };
    let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
    // One write, so that the lines of tests that run at the same time stay whole.
    file.write_all(format!("{test}\t{reason}\n").as_bytes()).unwrap();
}

/// Whether the backend lacks what a case needs; the case is noted as skipped then.
pub(crate) fn lacks<B: Backend>(backend: &B, need: Need) -> bool {
    let reason = backend.lacks(need);
    reason.inspect(|reason| skip(reason)).is_some()
}

/// Skips for want of a server, unless `PILLARBOX_REQUIRE` names it.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn missing(server: &str, reason: String) -> Missing {
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name.trim() == server);
    assert!(!is_required, "PILLARBOX_REQUIRE names {server}, but {reason}");
    Missing(reason)
}
