//! Dispatch: which event is next, and calling its listener.

pub(super) mod crash_guard;
pub(super) mod deliverer;
pub(super) mod dispatched;
pub(super) mod fair_share;
pub(super) mod pause;
pub(super) mod prefetch;
pub(super) mod route_queue;
pub(super) mod worker_pool;
