//! A store that passes a crash point before and after each call.

use std::sync::Arc;

use pillarbox::crash_point::pass;
use pillarbox::store::{
    AcquireShards, AuditEntry, Breakdown, Claim, ClaimMode, Claims, DeadLetter, DeliveryMode, Due,
    Events, Filter, Heads, Join, Lease, List, Member, Notifications, Operated, Operation,
    Operations, OutboxConfig, OwnedShard, Ownership, Pending, Promote, Purge, Read, ReadHeads,
    ReadKeys, RenewRows, Renewal, RowLease, Schema, Settle, SettleRows, Settled, Starts,
    Statistics, Stats, StoredEvent, async_trait,
};
use pillarbox::{EventId, OwnerId, Result, Seq, ShardId, Store, TablePrefix};

/// Wraps a store: `settle` passes `settle.before` and `settle.after`, and so on.
#[derive(Debug)]
pub struct CrashingStore {
    store: Arc<dyn Store>,
    /// What leases of single rows are for.
    rows: RowPoints,
}

/// The crash points of leases of single rows. A relay by shards has such leases only for events of
/// the local queue.
#[derive(Debug)]
struct RowPoints {
    settle: Around,
    release: Around,
}

/// The crash points before and after a call.
type Around = [&'static str; 2];

const BY_SHARDS: RowPoints = RowPoints {
    settle: ["hot.settle.before", "hot.settle.after"],
    release: ["hot.release.before", "hot.release.after"],
};

const BY_ROWS: RowPoints = RowPoints {
    settle: ["rows.settle.before", "rows.settle.after"],
    release: ["rows.release.before", "rows.release.after"],
};

impl CrashingStore {
    /// Wraps the store of a relay with this claim mode.
    pub fn new(store: Arc<dyn Store>, claim: ClaimMode) -> Self {
        let rows = if claim == ClaimMode::Rows { BY_ROWS } else { BY_SHARDS };
        Self { store, rows }
    }
}

/// Implements a facet. The methods in front are only forwarded; each of the others has a function
/// that gives the crash points around it.
macro_rules! facet {
    ($facet:ident {
        $(fn $get:ident(&self) -> $value:ty;)*
        $(async fn $plain:ident(&self $(, $it:ident: $of:ty)*) -> $returns:ty;)*
    } $({
        $($points:expr => async fn $method:ident(&self $(, $arg:ident: $type:ty)*) -> $answer:ty;)*
    })?) => {
        #[async_trait]
        impl $facet for CrashingStore {
            $(fn $get(&self) -> $value {
                self.store.$get()
            })*

            $(async fn $plain(&self $(, $it: $of)*) -> $returns {
                self.store.$plain($($it),*).await
            })*

            $($(async fn $method(&self $(, $arg: $type)*) -> $answer {
                let points: fn(&Self) -> Around = $points;
                let [before, after] = points(self);
                pass(before)?;
                let answer = self.store.$method($($arg),*).await?;
                pass(after)?;
                Ok(answer)
            })*)?
        }
    };
}

facet!(Schema {
    fn name(&self) -> &'static str;
    fn prefix(&self) -> TablePrefix;
    fn is_pooled(&self) -> bool;
    async fn migrate(&self) -> Result<()>;
    async fn config(&self) -> Result<OutboxConfig>;
    async fn mark_seq(&self) -> Result<()>;
    async fn configure(&self, mode: &DeliveryMode) -> Result<()>;
});

facet!(Ownership {
    async fn members(&self) -> Result<Vec<Member>>;
} {
    |_| ["join.before", "join.after"] => async fn join(&self, join: &Join) -> Result<()>;
    |_| ["renew.before", "renew.after"] => async fn renew(&self, lease: &Lease) -> Result<Renewal>;
    |_| ["take.before", "take.after"] =>
        async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>>;
    |_| ["release.before", "release.after"] =>
        async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64>;
    |_| ["leave.before", "leave.after"] => async fn leave(&self, owner: &OwnerId) -> Result<()>;
});

facet!(Events {
    async fn postpone(&self, rows: &[RowLease]) -> Result<u64>;
    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>>;
    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>>;
    async fn notify(&self) -> Result<()>;
} {
    |_| READ => async fn read(&self, read: &Read) -> Result<Vec<Pending>>;
    |_| READ => async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>>;
    |_| READ => async fn read_heads(&self, read: &ReadHeads) -> Result<Heads>;
    |_| ["promote.before", "promote.after"] =>
        async fn promote(&self, promote: &Promote) -> Result<Due>;
    |_| ["settle.before", "settle.after"] =>
        async fn settle(&self, settle: &Settle) -> Result<Settled>;
});

const READ: Around = ["read.before", "read.after"];

facet!(Claims {
    async fn count_due(&self, shards: &[ShardId]) -> Result<u64>;
} {
    |_| ["claim.before", "claim.after"] =>
        async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>>;
    |_| ["rows.renew.before", "rows.renew.after"] =>
        async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>>;
    |it| it.rows.release =>
        async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64>;
    |_| ["hot.reclaim.before", "hot.reclaim.after"] =>
        async fn reclaim(&self, rows: &[RowLease]) -> Result<u64>;
    |_| ["count.before", "count.after"] =>
        async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>>;
    |it| it.rows.settle => async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>>;
});

facet!(Operations {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>>;
    async fn count_dead(&self, filter: &Filter) -> Result<u64>;
    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>>;
    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>>;
} {
    |_| ["operate.before", "operate.after"] =>
        async fn operate(&self, operation: &Operation) -> Result<Operated>;
    |_| ["purge.before", "purge.after"] => async fn purge(&self, purge: &Purge) -> Result<u64>;
});

facet!(Statistics {
    async fn stats(&self) -> Result<Stats>;
    async fn breakdown(&self) -> Result<Breakdown>;
});
