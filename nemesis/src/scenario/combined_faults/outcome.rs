//! The outcome of a run with combined faults.

use std::time::Duration;

use crate::bank::{Account, Effect};
use crate::check::Report;
use crate::deployment::Server;
use crate::finding::Finding;
use crate::scenario::Environment;
use crate::scenario::fault::{FaultKind, InjectedFaults};
use crate::settings::MAX_UNSETTLED;
use crate::{Result, audit};

/// The limits of a process.
const MOST_MEMORY: u64 = 256 * 1024;
const MOST_THREADS: u64 = 32;
const MOST_FILES: u64 = 64;

/// Allows for a busy machine and a slow disk.
const SLACK: Duration = Duration::from_secs(10);

/// The least rate of draining a backlog, in events per second.
const SLOWEST: u64 = 20;

/// The least percentage of successful transactions; every other one may meet a server that is down.
pub(super) const MIN_SUCCESS_PERCENT: u64 = 50;

/// The percentage of successful transactions.
pub(super) fn share(succeeded: u64, failed: u64) -> u64 {
    100 * succeeded / (succeeded + failed).max(1)
}

/// How the backlog was drained after the last fault.
pub(in crate::scenario) struct Drained {
    pub(in crate::scenario) took: Duration,
    /// The number of pending events after the last fault.
    pub(in crate::scenario) left: u64,
    /// How long an event may wait for its next attempt.
    pub(in crate::scenario) at_most: Duration,
}

/// What must have happened, and what the server and the operator did.
pub(in crate::scenario) struct Expected {
    pub(in crate::scenario) relays: u64,
    /// The kinds of faults that must have happened.
    pub(in crate::scenario) kinds: Vec<FaultKind>,
    /// Kills of the server; `None` where it is not private.
    pub(in crate::scenario) crashed: Option<usize>,
    /// Replays; `None` where there was no operator.
    pub(in crate::scenario) replayed: Option<usize>,
}

pub(in crate::scenario) struct Outcome {
    expected: Expected,
    server: Server,
    report: Report,
    injected: InjectedFaults,
    effects: Vec<Effect>,
    committed: Vec<Account>,
    takeovers: Vec<Duration>,
    busy_kills: usize,
    forbidden: Vec<(String, String)>,
    drained: Drained,
}

impl Outcome {
    /// Looks at everything that is left.
    pub(in crate::scenario) async fn of(
        env: &Environment,
        expected: Expected,
        injected: InjectedFaults,
        drained: Drained,
    ) -> Result<Self> {
        let bank = &env.deployment.bank;
        let forbidden = audit::violations(bank).await?;
        for (event, what) in forbidden.iter().take(3) {
            eprintln!("  {event} {what}");
        }
        Ok(Self {
            expected,
            server: env.deployment.server,
            report: env.report(&injected.faults).await?,
            effects: bank.effects().await?,
            committed: bank.committed().await?,
            takeovers: injected.takeovers(&env.deployment.read_log()?),
            busy_kills: injected.busy_kills(&env.deployment.read_log()?),
            forbidden,
            injected,
            drained,
        })
    }

    pub(in crate::scenario) fn findings(&self) -> Vec<Finding> {
        [
            self.what_was_done(),
            self.what_was_promised(),
            self.what_came_twice(),
            self.what_it_took(),
        ]
        .concat()
    }

    /// How many of those who were killed had delivered something.
    pub(in crate::scenario) const fn busy_kills(&self) -> usize {
        self.busy_kills
    }

    /// How many transactions did not end as they should.
    pub(in crate::scenario) fn refused(&self) -> usize {
        usize::try_from(self.report.transactions.1).unwrap_or(usize::MAX)
    }

    /// A run in which nothing happened proves nothing.
    fn what_was_done(&self) -> Vec<Finding> {
        let mut found = vec![Finding::info("relays", self.expected.relays).key("relays")];
        for kind in &self.expected.kinds {
            found.push(
                Finding::must_happen(kind.name(), self.injected.count(*kind)).key(kind.key()),
            );
        }
        found.extend(self.expected.replayed.map(|replayed| {
            Finding::must_happen("replays of dead letters", replayed).key("replays")
        }));
        found.push(match self.expected.crashed {
            Some(crashed) => {
                Finding::must_happen("kills of the server", crashed).key("server_kills")
            }
            None if self.server == Server::Sqlite => {
                Finding::info("kills of the server", "SQLite has no server")
            }
            None => Finding::info("kills of the server", "the server is not private"),
        });
        let (succeeded, failed) = self.report.transactions;
        let share = share(succeeded, failed);
        let goal = format!(">= {MIN_SUCCESS_PERCENT}");
        found.push(
            Finding::precondition(
                "successful transactions, in %",
                share,
                &goal,
                share >= MIN_SUCCESS_PERCENT,
            )
            .key("success_percent"),
        );
        found
    }

    fn what_was_promised(&self) -> Vec<Finding> {
        let report = &self.report;
        vec![
            Finding::info("events committed", report.committed).key("events"),
            Finding::info("of them through the local queue", report.from_local_queue)
                .key("from_local_queue"),
            Finding::must_be_zero("lost", report.lost).key("lost"),
            Finding::must_be_zero("ghosts", report.ghosts).key("ghosts"),
            Finding::must_be_zero("damaged", report.damaged).key("damaged"),
            Finding::must_be_zero("done without a delivery", report.done_undelivered)
                .key("done_undelivered"),
            Finding::must_be_zero("first deliveries of a key out of order", report.inversions)
                .key("inversions"),
            Finding::must_be_zero("missing or repeated effects", self.wrong_effects())
                .key("double_effects"),
            Finding::must_be_zero("wrong balances", self.wrong_balances()).key("wrong_balances"),
            Finding::must_be_zero("forbidden transitions", self.forbidden.len()).key("forbidden"),
            Finding::must_be_zero("replays without a delivery", report.unanswered_replays)
                .key("unanswered_replays"),
            Finding::must_be_zero("delivered before they were due", report.early).key("early"),
        ]
    }

    fn what_came_twice(&self) -> Vec<Finding> {
        let Report { duplicates, unexplained, worst, fenced, .. } = self.report;
        let bound = MAX_UNSETTLED as usize;
        let late = "late verdicts fenced";
        let must_fence = self.expected.kinds.contains(&FaultKind::Pause);
        let fenced = if must_fence {
            Finding::must_happen(late, fenced)
        } else {
            Finding::info(late, fenced)
        };
        vec![
            fenced.key("fenced"),
            Finding::info("duplicates", duplicates).key("duplicates"),
            Finding::must_be_zero("duplicates without a fault", unexplained).key("unexplained"),
            Finding::guarantee(
                "most duplicates of one fault",
                worst,
                &format!("<= {bound}"),
                worst <= bound,
            )
            .key("duplicates_of_one_fault"),
        ]
    }

    fn what_it_took(&self) -> Vec<Finding> {
        let Drained { took, left, at_most } = self.drained;
        let bound = at_most + SLACK + Duration::from_secs(left / SLOWEST);
        let usage = self.injected.usage;
        let within = |what, value: u64, most: u64, key| {
            Finding::guarantee(what, value, &format!("<= {most}"), value <= most).key(key)
        };
        vec![
            Finding::info("takeover after a kill, p99, in ms", self.takeover_p99().as_millis())
                .key("takeover_p99_ms"),
            Finding::info("pending events after the last fault", left).key("left"),
            Finding::target(
                "delivered after the last fault, in ms",
                took.as_millis(),
                &format!("<= {}", bound.as_millis()),
                took <= bound,
            )
            .key("drained_ms"),
            within("most memory of a process, in KiB", usage.memory, MOST_MEMORY, "memory_kib"),
            within("most threads", usage.threads, MOST_THREADS, "threads"),
            within("most files and connections", usage.files, MOST_FILES, "files"),
        ]
    }

    /// Each event has its effect once.
    fn wrong_effects(&self) -> usize {
        let pairs = self.effects.iter().zip(&self.committed);
        let wrong: u64 = pairs.map(|(effect, it)| effect.events.abs_diff(it.events())).sum();
        usize::try_from(wrong).unwrap_or(usize::MAX)
    }

    /// What the events add up to is what is on the account.
    fn wrong_balances(&self) -> usize {
        let pairs = self.effects.iter().zip(&self.committed);
        pairs.filter(|(effect, account)| effect.balance != account.balance).count()
    }

    fn takeover_p99(&self) -> Duration {
        let mut takeovers = self.takeovers.clone();
        takeovers.sort_unstable();
        let at = takeovers.len().saturating_sub(1) * 99 / 100;
        takeovers.get(at).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Verdict;
    use crate::process::Usage;

    fn expected(kinds: Vec<FaultKind>, count: usize) -> Expected {
        Expected { relays: 1, kinds, crashed: Some(count), replayed: Some(count) }
    }

    /// Nothing wrong, and a kill.
    fn good() -> Outcome {
        let mut injected = InjectedFaults::default();
        injected.add(FaultKind::Kill);
        let account = Account { ordered: 2, unordered: 1, balance: 5 };
        Outcome {
            expected: expected(vec![FaultKind::Kill], 1),
            server: Server::Postgres,
            report: Report { transactions: (9, 1), fenced: 1, ..Report::default() },
            injected,
            effects: vec![Effect { events: 3, balance: 5 }],
            committed: vec![account],
            takeovers: Vec::new(),
            busy_kills: 0,
            forbidden: Vec::new(),
            drained: Drained { took: SLACK, left: 0, at_most: Duration::from_secs(1) },
        }
    }

    fn bad(outcome: &Outcome) -> Vec<(&'static str, Verdict)> {
        let bad = outcome.findings().into_iter().filter(|it| it.verdict.is_bad());
        bad.map(|it| (it.key.unwrap_or_default(), it.verdict)).collect()
    }

    #[test]
    fn each_part_of_an_outcome_can_be_found_wrong() {
        assert_eq!(bad(&good()), []);
        let twice = vec![Effect { events: 4, balance: 7 }];
        let forbidden = vec![("x".to_owned(), "was done and is not".to_owned())];
        let late = Drained { took: SLACK * 2, left: 0, at_most: Duration::from_secs(1) };
        let usage = Usage { memory: MOST_MEMORY + 1, threads: 99, files: 999 };
        let report = Report {
            transactions: (1, 9),
            lost: 1,
            ghosts: 1,
            damaged: 1,
            done_undelivered: 1,
            inversions: 1,
            unanswered_replays: 1,
            early: 1,
            unexplained: 1,
            worst: 65,
            ..Report::default()
        };
        let outcome = Outcome {
            report,
            effects: twice,
            forbidden,
            drained: late,
            injected: InjectedFaults { usage, ..InjectedFaults::default() },
            expected: expected(vec![FaultKind::Kill, FaultKind::Pause], 0),
            ..good()
        };

        let bad = bad(&outcome);
        let keys = |verdict| -> Vec<&str> {
            bad.iter().filter(|it| it.1 == verdict).map(|(key, _)| *key).collect()
        };

        let not_done = ["kills", "stops", "replays", "server_kills", "success_percent", "fenced"];
        assert_eq!(keys(Verdict::Invalid), not_done);
        assert_eq!(keys(Verdict::Missed), ["drained_ms"]);
        let promises = [
            "lost",
            "ghosts",
            "damaged",
            "done_undelivered",
            "inversions",
            "double_effects",
            "wrong_balances",
            "forbidden",
            "unanswered_replays",
            "early",
            "unexplained",
            "duplicates_of_one_fault",
            "memory_kib",
            "threads",
            "files",
        ];
        assert_eq!(keys(Verdict::Broken), promises);
    }
}
