//! The example does what it says.

use std::process::Command;

#[test]
fn every_key_keeps_its_order() {
    let run = Command::new(env!("CARGO_BIN_EXE_ordered")).output();

    let run = run.expect("the example was built with this test");
    let (said, errors) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{errors}");
    assert_eq!(
        said.lines().collect::<Vec<_>>(),
        [
            "ada: 1, 2, 3",
            "bob: 1 failed, 1 failed, 1, 2, 3",
            "eve: 1 failed",
            "1 replayed",
            "eve: 1 failed, 1, 2, 3",
        ]
    );
}
