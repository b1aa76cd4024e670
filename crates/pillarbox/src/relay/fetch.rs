//! Fetch: where events come from.

pub(super) mod claim_size;
pub(super) mod due_rows;
pub(super) mod local_events;
pub(super) mod memory;
pub(super) mod poll_timer;
pub(super) mod ready_rows;
pub(super) mod row_claims;
pub(super) mod row_lease;
pub(super) mod shard_queues;
pub(super) mod shard_reader;
