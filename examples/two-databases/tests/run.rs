//! The example does what it says.

use std::process::Command;

#[test]
fn an_order_has_one_invoice_however_often_it_comes() {
    let run = Command::new(env!("CARGO_BIN_EXE_two-databases")).output();

    let run = run.expect("the example was built with this test");
    let (said, errors) =
        (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{errors}");
    let mut lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.pop(), Some("3 orders, 3 invoices"), "{said}");
    // Two relays say this, and none waits for the other.
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "order 1 has its invoice",
            "order 2 came again, to no effect",
            "order 2 has its invoice",
            "order 3 has its invoice",
        ]
    );
}
