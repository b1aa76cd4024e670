//! Careful: a row that somebody had in hand and never decided on is counted before it is begun
//! again.

use std::sync::Arc;

use crate::clock::instant;
use crate::error::Result;
use crate::relay::dispatch::crash_guard::{self, Action, Counted, Suspect};
use crate::relay::dispatch::deliverer::Outcome;
use crate::relay::fetch::rows::ready_rows::Waiting;
use crate::relay::rows::{Progress, RowEngine, RowWork};
use crate::store::RowLease;
use crate::telemetry::{Component, RelayEvent};

impl Suspect for Waiting {
    fn row(&self) -> RowLease {
        self.guard.row
    }
}

impl RowEngine {
    /// Whether nothing may start now, because one event is alone or is to be.
    pub(super) fn waits_alone(&mut self) -> bool {
        let is_idle = self.work.deliveries.is_empty();
        self.work.suspects.waits_alone(is_idle)
    }

    /// Counts what is about to be begun.
    pub(super) fn start_count(&mut self) {
        let is_quiet = self.work.deliveries.is_empty() && self.work.writes.is_quiet();
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let tasks = &mut self.work.tasks;
        self.work.suspects.count(is_quiet, |asked| {
            let count = async move { crash_guard::count(&*store, &asked, patience).await };
            tasks.spawn(async move { Progress::Counted(count.await) }).id()
        });
    }

    /// What is not to be begun here is given back: its count, if it has one, stays with it.
    pub(super) fn counted(&mut self, counted: Result<Counted>) {
        if let Err(error) = &counted {
            self.observers.on_event(&RelayEvent::failed(Component::Read, error));
            self.work.look.failed(instant());
        }
        let goes_on = !self.work.is_stopping;
        let max_crashes = self.settings.max_crashes.get();
        for (waiting, fate) in self.work.suspects.counted(counted, max_crashes) {
            match fate {
                Action::Start if goes_on => self.start(waiting),
                Action::GiveUp(failure) if goes_on => {
                    let (under_way, _) = waiting.start();
                    self.judge(under_way, Outcome::Judgeable(Err(failure.into())));
                }
                _ => self.work.writes.give_back([waiting.guard.row]),
            }
        }
        if self.work.is_stopping {
            // Those that were counted before would wait to be alone.
            self.leave_suspects();
        }
    }

    /// Gives those back that are not to be counted here any more.
    pub(super) fn leave_suspects(&mut self) {
        let Self { work: RowWork { suspects, writes, .. }, .. } = self;
        suspects.retain(|waiting| {
            writes.give_back([waiting.guard.row]);
            false
        });
    }
}
