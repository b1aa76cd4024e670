//! The settings of a relay, from a file.

use std::time::Duration;

use pillarbox::store::{ClaimMode, Order};
use pillarbox::{ErrorKind, RelaySettings};

const YEAR: Duration = Duration::from_secs(366 * 86_400);

/// Settings that come back as they went and, where they pass, contradict nothing.
pub fn run(data: &[u8]) {
    let Ok(settings) = serde_json::from_slice::<RelaySettings>(data) else { return };
    let text = serde_json::to_string(&settings).expect("numbers and words only");
    let back: RelaySettings = serde_json::from_str(&text).expect("what was written can be read");
    assert_eq!(back, settings, "{text}");
    match settings.check() {
        Ok(()) => assert_consistent(&settings),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Configuration, "{error}"),
    }
}

/// What the settings' documentation says, in other words than the check's.
fn assert_consistent(s: &RelaySettings) {
    let needed = s.delivery_timeout.checked_add(s.margin).expect("both are bounded");
    assert!(s.lease >= needed, "a delivery outlives the lease: {s:?}");
    for wait in
        [s.lease, s.delivery_timeout, s.margin, s.poll, s.sweep, s.purge_every, s.gauges_every]
    {
        assert!(wait > Duration::ZERO && wait <= YEAR, "{s:?}");
    }
    assert!(s.drain <= YEAR, "{s:?}");
    for kept in [s.retention_dead, s.retention_audit, s.retention_inbox] {
        assert!(kept > Duration::ZERO, "{s:?}");
    }
    assert!(s.workers <= s.max_unsettled, "workers that never start: {s:?}");
    assert!(s.purge_batch.get() <= 10_000, "{s:?}");
    assert!(s.claim != ClaimMode::Shards || s.order == Order::Key, "{s:?}");
}

/// The defaults, and each contradiction.
pub fn seeds() -> Vec<Vec<u8>> {
    let default = serde_json::to_string(&RelaySettings::default()).unwrap_or_default();
    [
        default.as_str(),
        "{}",
        r#"{"lease_ms":11000,"delivery_timeout_ms":10000,"margin_ms":1000}"#,
        r#"{"lease_ms":10999,"delivery_timeout_ms":10000,"margin_ms":1000}"#,
        r#"{"lease_ms":31622400000,"delivery_timeout_ms":18446744073709551615}"#,
        r#"{"claim":"rows","order":"none","workers":2000,"max_unsettled":1}"#,
        r#"{"claim":"shards","order":"none"}"#,
        r#"{"claim":"none","retention_done_ms":0,"retention_dead_ms":0}"#,
        r#"{"poll_ms":0,"purge_batch":10001,"on_dead":"skip","unroutable":"wait"}"#,
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
