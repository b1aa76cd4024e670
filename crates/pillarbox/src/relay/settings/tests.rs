use super::*;

#[test]
fn the_defaults_agree_with_each_other() {
    Settings::default().check().unwrap();
}

#[test]
fn a_lease_shorter_than_a_delivery_is_refused_with_the_numbers() {
    let settings = Settings { lease: Duration::from_secs(5), ..Settings::default() };

    let message = settings.check().unwrap_err().to_string();

    assert!(message.starts_with("lease (5s) is shorter than"), "{message}");
    assert!(message.ends_with("raise lease to at least 11s"), "{message}");
}

#[test]
fn contradictions_are_refused() {
    let zero = Settings { poll: Duration::ZERO, ..Settings::default() };
    let crowded = Settings { workers: count(3000), ..Settings::default() };

    let endless = Settings { delivery_timeout: Duration::MAX, ..Settings::default() };
    assert_eq!(endless.check().unwrap_err().kind(), ErrorKind::Configuration);
    let patient = Settings { drain: Duration::MAX, ..Settings::default() };
    assert_eq!(patient.check().unwrap_err().kind(), ErrorKind::Configuration);
    assert_eq!(zero.check().unwrap_err().kind(), ErrorKind::Configuration);
    assert_eq!(crowded.check().unwrap_err().kind(), ErrorKind::Configuration);
}

#[test]
fn retentions_that_keep_nothing_are_refused_by_name() {
    let zero = Duration::ZERO;
    let contradictions = [
        ("retention_dead", Settings { retention_dead: zero, ..Settings::default() }),
        ("retention_audit", Settings { retention_audit: zero, ..Settings::default() }),
        ("retention_inbox", Settings { retention_inbox: zero, ..Settings::default() }),
        ("purge_every", Settings { purge_every: zero, ..Settings::default() }),
        ("gauges_every", Settings { gauges_every: zero, ..Settings::default() }),
        ("purge_batch", Settings { purge_batch: count(10_001), ..Settings::default() }),
    ];

    for (name, settings) in contradictions {
        let message = settings.check().unwrap_err().to_string();
        assert!(message.starts_with(name), "{message}");
    }
    let deleting = Settings { retention_done: zero, ..Settings::default() };
    deleting.check().unwrap();
}

#[test]
fn any_order_needs_row_claims() {
    let of = |claim| Settings { claim, order: Order::None, ..Settings::default() };

    let message = of(ClaimMode::Shards).check().unwrap_err().to_string();

    assert!(message.starts_with("order is none"), "{message}");
    of(ClaimMode::Rows).check().unwrap();
}

#[test]
fn files_speak_in_milliseconds_and_misspelt_keys_are_refused() {
    let settings: Settings = serde_json::from_str(r#"{"poll_ms": 50, "claim": "rows"}"#).unwrap();

    assert_eq!(settings.poll, Duration::from_millis(50));
    assert_eq!((settings.claim, settings.order), (ClaimMode::Rows, Order::Key));
    assert!(serde_json::from_str::<Settings>(r#"{"pol_ms": 50}"#).is_err());
}
