//! Keeps count of what was promised and what was done, and compares them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::{Failure, Next};
use tokio::sync::Notify;

use crate::{OrderPlaced, Result};

#[derive(Default)]
pub(crate) struct Ledger {
    books: Mutex<Books>,
    changed: Notify,
}

#[derive(Default)]
struct Books {
    committed: BTreeSet<i64>,
    rolled_back: usize,
    delivered: BTreeSet<i64>,
    retried: BTreeSet<i64>,
    given_up: BTreeSet<i64>,
}

impl Ledger {
    pub(crate) fn committed(&self, order: &OrderPlaced) {
        self.books().committed.insert(order.order_id);
        println!("  order over {:>5.2}  committed", order.total());
    }

    pub(crate) fn rolled_back(&self, order: &OrderPlaced) {
        self.books().rolled_back += 1;
        println!("  order over {:>5.2}  rolled back", order.total());
    }

    pub(crate) fn delivered(&self, order: &OrderPlaced, attempt: u32) {
        self.books().delivered.insert(order.order_id);
        println!("  order over {:>5.2}    receipt sent (attempt {attempt})", order.total());
        self.changed.notify_one();
    }

    pub(crate) fn failed(&self, order: &OrderPlaced, failure: Failure) -> Failure {
        let mut books = self.books();
        let (set, fate) = match failure.next() {
            Next::Dead => (&mut books.given_up, "given up"),
            _ => (&mut books.retried, "will retry"),
        };
        set.insert(order.order_id);
        println!("  order over {:>5.2}    {failure}: {fate}", order.total());
        self.changed.notify_one();
        failure
    }

    /// Waits until every committed order was heard of, 30 seconds at most.
    pub(crate) async fn wait(&self) {
        let all_heard = async {
            while !self.books().is_settled() {
                self.changed.notified().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(30), all_heard).await;
    }

    pub(crate) fn report(&self) -> Result<()> {
        let books = self.books();
        let (committed, delivered) = (books.committed.len(), books.ours(&books.delivered));
        let (retried, given_up) = (books.ours(&books.retried), books.ours(&books.given_up));
        println!("\ntransactions committed    {committed:>3}");
        println!("transactions rolled back  {:>3}", books.rolled_back);
        println!("events delivered          {delivered:>3}  ({retried} of them after a retry)");
        println!("events given up           {given_up:>3}  (a dead letter, kept for replay)");
        if !books.is_settled() {
            return Err("committed and delivered differ: this is a bug".into());
        }
        println!("check: {committed} committed = {delivered} delivered + {given_up} given up  ok");
        Ok(())
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OrderPlaced {
    #[expect(clippy::cast_precision_loss, reason = "a price to look at")]
    fn total(&self) -> f64 {
        self.total_cents as f64 / 100.0
    }
}

impl Books {
    /// Every committed order was delivered or given up, and no other of this run was.
    fn is_settled(&self) -> bool {
        self.committed.iter().all(|id| self.delivered.contains(id) != self.given_up.contains(id))
    }

    /// How many of these are orders of this run; an old database may have more to tell.
    fn ours(&self, orders: &BTreeSet<i64>) -> usize {
        orders.intersection(&self.committed).count()
    }
}
