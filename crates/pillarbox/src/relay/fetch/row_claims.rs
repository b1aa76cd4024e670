//! Claims as many rows as can start soon, one claim at a time.

use std::sync::Arc;

use tokio::time::Instant;

use crate::clock::{Clock, Deadline, instant};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, jitter};
use crate::relay::fetch::claim_size::ClaimSize;
use crate::relay::fetch::memory::{Limits, Memory, PageSize};
use crate::relay::fetch::poll_timer::PollTimer;
use crate::relay::fetch::ready_rows::Waiting;
use crate::relay::settings::Settings;
use crate::relay::store_tasks::StoreTasks;
use crate::store::{Budget, Claim, OutboxConfig, Pending, RowLease};
use crate::telemetry::{Component, Observers, RelayEvent};

#[derive(Debug)]
pub(crate) struct RowClaims {
    /// The next claim.
    claim: Claim,
    is_claiming: bool,
    /// Rows that are no events and were settled since the claim under way was started: it may still
    /// return them.
    settled_meanwhile: Vec<RowLease>,
    pub(crate) timer: PollTimer,
    pub(crate) size: ClaimSize,
    page_size: PageSize,
    /// Payloads and headers of claimed rows.
    memory: Memory,
    max_unsettled: usize,
    clock: Arc<dyn Clock>,
    observers: Observers,
}

/// What there is to do already.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Workers without a delivery.
    pub(crate) free_workers: usize,
    /// Claimed rows that wait for a worker.
    pub(crate) waiting: usize,
    /// Events in delivery, or delivered and not settled.
    pub(crate) unsettled: usize,
}

/// What a claim has brought.
#[derive(Debug, Default)]
pub(crate) struct Claimed {
    pub(crate) rows: Vec<Waiting>,
    /// Beyond the budget for memory: to be given back.
    pub(crate) too_many: Vec<RowLease>,
}

impl RowClaims {
    pub(crate) fn new(
        owner: OwnerId,
        config: OutboxConfig,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        observers: Observers,
    ) -> Self {
        let now = instant();
        let (workers, batch) = (settings.workers.get(), settings.batch.get());
        let max_unsettled = settings.max_unsettled.get();
        let claim = Claim {
            owner,
            length: settings.lease,
            shards: shards_by_chance(config.shards.get()),
            after: None,
            limit: workers,
            budget: Budget::new(0),
            order: config.mode.order,
        };
        Self {
            claim,
            is_claiming: false,
            settled_meanwhile: Vec::new(),
            timer: PollTimer::new(settings.poll, now),
            size: ClaimSize::new(workers, batch.min(max_unsettled), now),
            page_size: PageSize::new(batch),
            memory: Memory::default(),
            max_unsettled: max_unsettled as usize,
            clock,
            observers,
        }
    }

    /// All shards, in the order of the next claim.
    pub(crate) fn shards(&self) -> &[ShardId] {
        &self.claim.shards
    }

    /// Whether a claim is under way, or is to come.
    pub(crate) fn is_due(&self) -> bool {
        self.is_claiming || self.timer.is_due()
    }

    pub(crate) fn is_under_way(&self) -> bool {
        self.is_claiming
    }

    /// Remembers a row that is no event until the claim under way is answered.
    pub(crate) fn note_settled(&mut self, row: RowLease) {
        if self.is_claiming {
            self.settled_meanwhile.push(row);
        }
    }

    /// Rows that are no events and were settled since the last claim was started.
    pub(crate) fn settled_meanwhile(&self) -> &[RowLease] {
        &self.settled_meanwhile
    }

    /// Starts a claim, if there is room and something may be due. Rows in `skip` are not returned
    /// without a lease.
    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        load: Load,
        skip: impl Iterator<Item = Seq>,
        tasks: &mut StoreTasks<A>,
        answer: fn(Deadline, Result<Vec<Pending>>) -> A,
    ) {
        if self.is_claiming || !self.timer.is_wanted() {
            return;
        }
        let limit = u32::try_from(self.room(load)).unwrap_or(u32::MAX);
        if limit == 0 {
            return;
        }
        self.timer.begin();
        self.is_claiming = true;
        self.settled_meanwhile.clear();
        self.claim.limit = limit;
        self.claim.budget.bytes = Limits::RELAY.budget(self.memory.bytes());
        self.claim.budget.skip = skip.collect();
        let (store, claim) = (tasks.store(), self.claim.clone());
        // Counted from before the request: the database can only count from later.
        let until = Deadline::after(&*self.clock, claim.length);
        let claiming = async move {
            crash_point!("claim.before"?);
            let rows = store.claim(&claim).await;
            crash_point!("claim.after"?);
            rows
        };
        tasks.call(claiming, move |rows| answer(until, rows));
    }

    /// How many rows there is room for; none while enough wait.
    fn room(&mut self, Load { free_workers, waiting, unsettled }: Load) -> usize {
        let ahead = self.size.ahead(instant()) as usize;
        if waiting * 2 > ahead || !Limits::RELAY.is_half_empty(self.memory.bytes()) {
            return 0;
        }
        let most = self.max_unsettled.saturating_sub(unsettled + waiting);
        (free_workers + ahead - waiting).min(most).min(self.page_size.rows() as usize)
    }

    /// Takes in an answer. Rows that were claimed before their time are left to [`DueRows`].
    ///
    /// [`DueRows`]: crate::relay::fetch::due_rows::DueRows
    pub(crate) fn answered(
        &mut self,
        until: Deadline,
        claimed: Result<Vec<Pending>>,
        now: Instant,
        note_early: impl FnOnce(&[Pending]),
    ) -> Claimed {
        self.is_claiming = false;
        let rows = match claimed {
            Ok(rows) => rows,
            Err(error) => {
                self.observers.on_event(&RelayEvent::failed(Component::Read, &error));
                self.page_size.failed();
                self.timer.failed(now);
                return Claimed::default();
            }
        };
        self.observers.on_event(&RelayEvent::Read { rows: rows.len() });
        if self.has_more(&rows) {
            self.timer.now();
        }
        self.claim.turn(&rows);
        note_early(&rows);
        let (unread, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().filter(|row| !row.is_early).partition(|row| row.content.is_unread());
        self.page_size.came(rows.len(), unread.is_empty());
        let waiting = |row: Pending| {
            let bytes = self.memory.hold(row.content.bytes());
            Waiting::claimed(row, until, now, bytes)
        };
        let rows = rows.into_iter().map(waiting).collect();
        if !unread.is_empty() {
            self.timer.now();
        }
        // Suspects are left to the end of their lease: given back, they would be like any other row.
        let too_many = unread.iter().filter(|row| !row.lapsed).map(RowLease::from).collect();
        Claimed { rows, too_many }
    }

    /// Whether another claim may find more. Keys before the one that this claim continued after were
    /// not searched.
    fn has_more(&self, rows: &[Pending]) -> bool {
        let is_full = rows.len() >= self.claim.limit as usize;
        is_full || self.claim.after.is_some()
    }
}

/// All shards, in turn from one by chance: relays that begin in different shards are not in each
/// other's way.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
fn shards_by_chance(count: u16) -> Vec<ShardId> {
    let mut shards: Vec<ShardId> =
        (0..i16::try_from(count).unwrap_or(i16::MAX)).map(ShardId).collect();
    let first = ((jitter() - 0.5) * f64::from(count)) as usize;
    let first = first.min(shards.len());
    shards.rotate_left(first);
    shards
}
