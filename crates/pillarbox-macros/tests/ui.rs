//! What the derive makes of good structs, and what it says of bad ones.

#[test]
fn good_events_compile_and_say_what_they_are() {
    trybuild::TestCases::new().pass("tests/ui/pass/*.rs");
}

#[test]
fn bad_events_are_refused_where_the_mistake_is() {
    trybuild::TestCases::new().compile_fail("tests/ui/fail/*.rs");
}
