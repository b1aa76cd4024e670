//! Rows: read, delivered, and settled.

use super::*;
use crate::store::Events as _;

impl Sim {
    /// The snapshot is taken here; it is looked at whenever `EndRead` comes.
    pub(super) async fn start_read(&mut self) {
        let Some(wanted) = self.queues.next_read(instant()) else { return };
        let page = Page::read(&self.store, wanted.clone()).await.unwrap();
        self.read = Some((wanted, page));
    }

    pub(super) fn end_read(&mut self, took: Duration) {
        self.read_mail();
        if let Some((wanted, page)) = self.read.take() {
            // Slow walks over heads come seldom: nothing that this looks for.
            let took = if matches!(wanted, Wanted::Heads(_)) { Duration::ZERO } else { took };
            page.give_to(&mut self.queues, wanted, took);
        }
    }

    /// Waiting rows that are due become new. The relay may not hear of it.
    pub(super) async fn promote(&mut self, is_heard: bool) {
        let promote = Promote { shards: self.held.keys().copied().collect(), limit: 3 };
        let due = self.store.promote(&promote).await.unwrap();
        if is_heard {
            self.queues.promoted(due.rows);
        }
    }

    pub(super) fn deliver(&mut self, which: usize, outcome: u8) {
        if self.running.is_empty() {
            return;
        }
        let (row, epoch) = self.end_delivery(which);
        let error = ErrorText::new("no");
        let delay = Duration::from_millis(u64::from(outcome) * 40);
        let verdict = match outcome {
            0 if row.key.is_some() => Verdict::Held { error },
            // Given up for good, and thereby as good as delivered.
            0 => Verdict::Dead { error },
            5 if row.key.is_some() && row.attempts > 0 => Verdict::Dead { error },
            1 | 2 => Verdict::Retry { delay, error },
            3 => Verdict::Defer { delay, error },
            4 => Verdict::Done,
            _ => Verdict::Delete,
        };
        if matches!(verdict, Verdict::Done | Verdict::Delete | Verdict::Dead { .. }) {
            self.delivered.push(row.event().unwrap().event_id().clone());
        }
        let row_key = RowKey { seq: row.seq, shard: row.shard, key: row.key };
        self.queues.decided(&row_key, &verdict);
        let RowKey { seq, shard, .. } = row_key;
        let token: Token = row.token;
        let settlement = Settlement { shard, epoch, seq, token, verdict, settled_by: None };
        self.decided.push((row_key, settlement));
    }

    /// Starts the next one, if a worker has nothing to do.
    pub(super) fn start(&mut self) {
        if self.running.len() < WORKERS {
            let Self { queues, routes, .. } = self;
            let next = queues.next_local(routes).or_else(|| queues.next_start(routes));
            let started = next.iter().map(|(row, _)| RouteId::of_row(&row.content));
            started.for_each(|route| routes.started(route));
            self.running.extend(next);
            self.queues.mind_slow_routes(instant());
        }
    }

    /// Takes one that is running.
    pub(super) fn end_delivery(&mut self, which: usize) -> (Pending, Epoch) {
        let (row, epoch) = self.running.swap_remove(which % self.running.len());
        self.routes.ended(RouteId::of_row(&row.content), true);
        (row, epoch)
    }

    /// Written here, acknowledged when `EndSettle` comes.
    pub(super) async fn start_settle(&mut self) {
        if self.settling.is_some() || self.decided.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut self.decided);
        let settlements = batch.iter().map(|(_, settlement)| settlement.clone()).collect();
        let settle = Settle { owner: self.owner.clone(), settlements };
        let settled = self.store.settle(&settle).await.unwrap();
        let all = settled.applied.len() == batch.len();
        assert!(all || self.is_faulty, "nobody else decides on these rows");
        self.settling = Some((batch, settled));
    }

    pub(super) fn end_settle(&mut self) {
        let Some((batch, settled)) = self.settling.take() else { return };
        for (row_key, Settlement { epoch, verdict, .. }) in batch {
            let held = self.held.get(&row_key.shard) == Some(&epoch);
            if held && settled.applied.contains(&row_key.seq) {
                self.queues.settled(&row_key, &verdict);
            } else {
                self.queues.overtaken(&row_key, &verdict);
            }
        }
    }
}
