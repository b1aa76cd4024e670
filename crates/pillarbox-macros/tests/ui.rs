//! The output of the derive macro for valid structs, and its errors for invalid ones.

#[test]
fn valid_events_compile() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}

#[test]
fn invalid_events_are_rejected_with_a_precise_span() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
