//! The names of metrics; `docs/observability.md` explains each.

pub(super) const SUCCESS: &str = "outbox_dispatch_success_total";
pub(super) const FAILURE: &str = "outbox_dispatch_failure_total";
pub(super) const DEAD: &str = "outbox_dispatch_dead_total";
pub(super) const DEFERRED: &str = "outbox_dispatch_deferred_total";
pub(super) const RETRY: &str = "outbox_retry_total";
pub(super) const FAILED_PERMANENT: &str = "outbox_failed_permanent_total";
pub(super) const LATENCY: &str = "outbox_dispatch_latency_ms";
pub(super) const PROCESSED: &str = "oksai_integration_event_processed_total";
pub(super) const LAG: &str = "oksai_integration_event_lag_ms";
pub(super) const DURATION: &str = "oksai_integration_event_duration_ms";

pub(super) const HOT: &str = "outbox_enqueue_hot_total";
pub(super) const HOT_DROPPED: &str = "outbox_enqueue_hot_dropped_total";
pub(super) const COLD: &str = "outbox_enqueue_cold_total";
pub(super) const FENCED: &str = "outbox_fenced_total";
pub(super) const SETTLED: &str = "outbox_settled_rows_total";
pub(super) const SETTLE_DURATION: &str = "outbox_settle_duration_ms";
pub(super) const LEASE_LOST: &str = "outbox_lease_lost_total";
pub(super) const SHARDS_TAKEN: &str = "outbox_shards_taken_total";
pub(super) const PURGED: &str = "outbox_purged_rows_total";
pub(super) const ERRORS: &str = "outbox_errors_total";

pub(super) const PENDING: &str = "outbox_pending_total";
pub(super) const WAITING_EVENTS: &str = "outbox_waiting_events";
pub(super) const DEAD_EVENTS: &str = "outbox_dead_events";
pub(super) const HELD_KEYS: &str = "outbox_held_keys";
pub(super) const OLDEST_LAG: &str = "outbox_lag_oldest_ms";
pub(super) const OWNERS: &str = "outbox_owners";
pub(super) const OWNED_SHARDS: &str = "outbox_owned_shards";
pub(super) const OWN_SHARDS: &str = "outbox_own_shards";
pub(super) const HOT_DEPTH: &str = "outbox_queue_hot_depth";
pub(super) const COLD_DEPTH: &str = "outbox_queue_cold_depth";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Returns the text between the first two `quote`s of each line that starts with `begin`.
    fn names<'t>(text: &'t str, begin: &str, quote: char) -> BTreeSet<&'t str> {
        let lines = text.lines().filter(|line| line.starts_with(begin));
        lines.filter_map(|line| line.split(quote).nth(1)).collect()
    }

    #[test]
    fn the_page_names_every_metric_and_no_other() {
        let page = include_str!("../../../../docs/observability.md");

        let documented: BTreeSet<_> = names(page, "| `", '`')
            .into_iter()
            .filter(|name| name.starts_with("outbox_") || name.starts_with("oksai_"))
            .collect();

        assert_eq!(documented, names(include_str!("name.rs"), "pub(super) const", '"'));
    }
}
