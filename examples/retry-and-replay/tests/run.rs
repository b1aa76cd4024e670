//! The example does what it says.

use std::process::Command;

#[test]
fn a_dead_letter_is_listed_and_comes_back() {
    let run = Command::new(env!("CARGO_BIN_EXE_retry-and-replay")).output();

    let run = run.expect("the example was built with this test");
    let (said, errors) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{errors}");
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "invoice 7: attempt 1 failed",
            "invoice 7: attempt 2 failed",
            "invoice 7: attempt 3 failed",
            "dead letter: invoice.due after 3 attempts: the bank does not answer",
            "1 replayed",
            "invoice 7: charged on attempt 1",
            "trail: outbox-send-failed",
            "trail: outbox-send-failed",
            "trail: outbox-failed-permanent",
            "trail: outbox-replayed by ana",
        ]
    );
}
