//! Fetch: where events come from.

pub(super) mod due_rows;
pub(super) mod local_events;
pub(super) mod memory;
pub(super) mod rows;
pub(super) mod shard_queues;
pub(super) mod shard_reader;
