//! Rows that were claimed.

pub(crate) mod claim_size;
pub(crate) mod poll_timer;
pub(crate) mod ready_rows;
pub(crate) mod row_claims;
pub(crate) mod row_lease;
