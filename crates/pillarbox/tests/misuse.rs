//! Misuse that does not compile, and says what to do instead.

#![cfg(all(feature = "macros", feature = "mysql", feature = "postgres", feature = "sqlite"))]

#[test]
fn misuse_does_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/misuse/*.rs");
}
