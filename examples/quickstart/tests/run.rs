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

#[test]
fn wrong_arguments_get_the_usage_and_wrong_urls_the_reason() {
    for (args, said) in [
        (&["--help"][..], "usage: quickstart"),
        (&["--store"], "usage: quickstart"),
        (&["--store", "mysql://db/shop"], "a SQLite URL begins with sqlite:"),
        (&["--store", "sqlite:///no/such/place/x.db"], "unable to open database file"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output();
        let run = run.expect("the example was built with this test");
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && errors.contains(said), "{args:?}: {errors}");
    }
}

fn check(args: &[&str]) {
    let run = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output();

    let run = run.expect("the example was built with this test");
    let said = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{errors}");
    assert!(
        said.contains("check: 15 committed = 14 delivered + 1 given up, 0 ghosts  ok"),
        "{said}"
    );
    assert!(said.contains("address does not exist: given up"), "{said}");
}
