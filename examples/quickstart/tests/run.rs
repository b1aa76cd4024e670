//! The example does what it says, on both databases.

use std::process::Command;

#[test]
fn it_delivers_what_was_committed_on_sqlite() {
    check(&[]);
}

#[test]
fn it_delivers_what_was_committed_on_postgres() {
    let Ok(url) = std::env::var("PILLARBOX_POSTGRES_URL") else {
        let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
        assert!(!required.contains("postgres"), "set PILLARBOX_POSTGRES_URL");
        return;
    };

    check(&["--store", &url]);
}

fn check(args: &[&str]) {
    let run = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output();

    let run = run.expect("the example was built with this test");
    let said = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{errors}");
    assert!(said.contains("check: 15 committed = 14 delivered + 1 given up  ok"), "{said}");
    assert!(said.contains("address does not exist: given up"), "{said}");
}
