//! Reading the status lines of `cargo nextest run`.

/// The package, as nextest writes it before a test's binary and name.
const PACKAGE: &str = "pillarbox-testkit::";

/// One status line: `PASS [   0.004s] (1/8) pillarbox-testkit::conformance store::…`.
#[derive(Debug, PartialEq)]
pub(super) struct Status<'a> {
    pub(super) test: &'a str,
    pub(super) outcome: Outcome,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Outcome {
    Passed,
    Failed,
}

/// Reads a line; `None` if it does not say how a test ended.
pub(super) fn status(line: &str) -> Option<Status<'_>> {
    let (label, rest) = line.trim().split_once(" [")?;
    let (_time, rest) = rest.split_once("s] ")?;
    let (_count, rest) = rest.split_once(PACKAGE)?;
    let (_binary, test) = rest.split_once(' ')?;
    let outcome = outcome(label)?;
    Some(Status { test: test.trim(), outcome })
}

/// Signals and time-outs have labels of their own, so all that is not known to pass has failed.
fn outcome(label: &str) -> Option<Outcome> {
    let mut words = label.split_whitespace().peekable();
    if words.next_if_eq(&"TRY").is_some() {
        words.next();
    }
    match words.next()? {
        "PASS" | "LEAK" | "FLAKY" => Some(Outcome::Passed),
        "SLOW" | "START" | "SKIP" | "RETRY" | "DELAY" | "TERMINATING" => None,
        word if is_label(word) => Some(Outcome::Failed),
        _ => None,
    }
}

fn is_label(word: &str) -> bool {
    word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '-')
}

#[cfg(test)]
mod tests {
    use super::*;

    const BINARY: &str = "pillarbox-testkit::conformance";

    fn outcome_of(line: &str) -> Option<Outcome> {
        status(line).map(|status| status.outcome)
    }

    #[test]
    fn a_status_line_gives_the_test_and_its_outcome() {
        let line = "        PASS [   0.004s] ( 1/80) pillarbox-testkit::conformance store::memory::claim::order";

        let expected = Status { test: "store::memory::claim::order", outcome: Outcome::Passed };
        assert_eq!(status(line), Some(expected));
    }

    #[test]
    fn every_binary_of_the_testkit_is_read() {
        let line = "        PASS [   0.004s] (12/80) pillarbox-testkit::relay sqlite::start::twice";

        let expected = Status { test: "sqlite::start::twice", outcome: Outcome::Passed };
        assert_eq!(status(line), Some(expected));
    }

    #[test]
    fn a_line_without_a_count_is_read_too() {
        let line =
            "        FAIL [   0.097s] pillarbox-testkit::conformance tx::sqlite::commit::once";

        let expected = Status { test: "tx::sqlite::commit::once", outcome: Outcome::Failed };
        assert_eq!(status(line), Some(expected));
    }

    #[test]
    fn signals_and_timeouts_are_failures() {
        for label in ["SIGABRT", "SIGSEGV", "TIMEOUT", "LEAK-FAIL", "XFAIL", "TRY 2 FAIL"] {
            let line = format!("  {label} [   0.009s] (6/8) {BINARY} store::memory::a::b");
            assert_eq!(outcome_of(&line), Some(Outcome::Failed), "{label}");
        }
    }

    #[test]
    fn leaks_and_second_tries_pass() {
        for label in ["LEAK", "FLAKY 2/3", "TRY 2 PASS"] {
            let line = format!("  {label} [   0.009s] (6/8) {BINARY} store::memory::a::b");
            assert_eq!(outcome_of(&line), Some(Outcome::Passed), "{label}");
        }
    }

    #[test]
    fn a_slow_test_has_not_ended() {
        let line = format!("        SLOW [> 60.000s] (─────) {BINARY} store::memory::a::b");

        assert_eq!(outcome_of(&line), None);
    }

    #[test]
    fn what_a_test_prints_is_no_status() {
        for line in [
            "    PASS [ 0.1s] hi",
            "     Summary [   3.028s] 8 tests run: 6 passed, 2 failed, 0 skipped",
            "   Compiling pillarbox-testkit v0.1.0",
            "    test store::postgres::claim::order ... FAILED",
            "",
        ] {
            assert_eq!(outcome_of(line), None, "{line}");
        }
    }
}
