//! Keeps count of what was promised and what was done, and compares them.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::{Failure, Next};
use tokio::sync::Notify;

use crate::{OrderPlaced, Result};

/// The books of one run, by the total of an order, of which each is placed once.
pub(crate) struct Ledger {
    pub(crate) run: String,
    books: Mutex<Books>,
    changed: Notify,
}

#[derive(Default)]
struct Books {
    committed: BTreeSet<i64>,
    rolled_back: BTreeSet<i64>,
    delivered: BTreeSet<i64>,
    retried: BTreeSet<i64>,
    given_up: BTreeSet<i64>,
}

impl Ledger {
    pub(crate) fn new(run: String) -> Self {
        Self { run, books: Mutex::default(), changed: Notify::new() }
    }

    pub(crate) fn committing(&self, order: &OrderPlaced) {
        self.books().committed.insert(order.total_cents);
        println!("  order over {:>5.2}  committed", order.total());
    }

    pub(crate) fn rolled_back(&self, order: &OrderPlaced) {
        self.books().rolled_back.insert(order.total_cents);
        println!("  order over {:>5.2}  rolled back", order.total());
    }

    pub(crate) fn delivered(&self, order: &OrderPlaced, attempt: u32) {
        if order.run != self.run {
            return;
        }
        self.books().delivered.insert(order.total_cents);
        println!("  order over {:>5.2}    receipt sent (attempt {attempt})", order.total());
        self.changed.notify_one();
    }

    pub(crate) fn failed(&self, order: &OrderPlaced, failure: Failure) -> Failure {
        if order.run != self.run {
            return failure;
        }
        let mut books = self.books();
        let (set, fate) = match failure.next() {
            Next::Dead => (&mut books.given_up, "given up"),
            _ => (&mut books.retried, "will retry"),
        };
        set.insert(order.total_cents);
        println!("  order over {:>5.2}    {failure}: {fate}", order.total());
        self.changed.notify_one();
        failure
    }

    /// Waits until every committed order was heard of, 30 seconds at most.
    pub(crate) async fn wait(&self) {
        let all_heard = async {
            while self.books().missing() > 0 {
                self.changed.notified().await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(30), all_heard).await;
    }

    pub(crate) fn report(&self) -> Result<()> {
        let books = self.books();
        let (committed, delivered) = (books.committed.len(), books.delivered.len());
        let (retried, given_up) = (books.retried.len(), books.given_up.len());
        println!("\ntransactions committed    {committed:>3}");
        println!("transactions rolled back  {:>3}", books.rolled_back.len());
        println!("events delivered          {delivered:>3}  ({retried} of them after a retry)");
        println!("events given up           {given_up:>3}  (a dead letter, kept for replay)");
        let (lost, ghosts) = (books.missing(), books.ghosts());
        if lost + ghosts > 0 {
            return Err(format!("{lost} events lost, {ghosts} ghosts: this is a bug").into());
        }
        println!(
            "check: {committed} committed = {delivered} delivered + {given_up} given up, \
             0 ghosts  ok"
        );
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
    /// Committed, and neither delivered nor given up.
    fn missing(&self) -> usize {
        let heard = |order: &&i64| self.delivered.contains(order) || self.given_up.contains(order);
        self.committed.iter().filter(|order| !heard(order)).count()
    }

    /// Heard of, though never committed.
    fn ghosts(&self) -> usize {
        let heard = self.delivered.union(&self.given_up);
        heard.filter(|order| !self.committed.contains(order)).count()
    }
}
