//! The curated mutants: a change of the source, and the test that must catch it.

use crate::Result;

/// A build that is broken on purpose.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// The changed behaviour.
    pub(super) what: &'static str,
    pub(super) edits: &'static [Edit],
    pub(super) catch: Catch,
}

/// Replaces a text that occurs exactly once.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// What must catch a mutant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Catch {
    /// A scenario of `nemesis`, with its options.
    Scenario(&'static [&'static str]),
    /// The tests whose names contain this.
    Tests(&'static str),
}

impl Catch {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Scenario(args) => args.last().copied().unwrap_or_default(),
            Self::Tests(name) => name,
        }
    }
}

impl Edit {
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        if text.matches(self.from).count() == 1 {
            return Ok(text.replacen(self.from, self.to, 1));
        }
        Err(format!("{} must contain this exactly once:\n{}", self.file, self.from).into())
    }
}

const COMBINED_FAULTS: Catch =
    Catch::Scenario(&["--quick", "--store", "postgres", "--seconds", "20", "combined_faults"]);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "settle-before-deliver",
        what: "settles an event while its listener is still running",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/dispatch/deliverer.rs",
            from: "let outcome =
                self.listener.call(self.cx.clone(), self.deliverer.listeners.rules()).await;",
            to: "let late = Arc::clone(&self);
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(20)).await;
                late.listener.call(late.cx.clone(), late.deliverer.listeners.rules()).await.ok();
            });
            let outcome: layer::Outcome = Ok(());",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "failures-are-successes",
        what: "settles every event of a batch as done, including failed ones",
        edits: &[Edit {
            file: "crates/pillarbox/src/retry.rs",
            from: "let Err(failure) = delivered.outcome else {",
            to: "let Err(failure) = delivered.outcome.or(Ok::<(), &Failed>(())) else {",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "two-of-a-key-at-once",
        what: "starts the next event of a key before the previous one has finished",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queue.rs",
            from: "if self.busy.is_some() || self.parked.is_some() {",
            to: "if self.parked.is_some() {",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "purge-of-what-waits",
        what: "purges by age alone, including pending events",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/sql/operations.rs",
            from: "pub(in super::super) const PURGE_DONE: &str = purge_final!(\"{done}\", \"({done})\");",
            to: "pub(in super::super) const PURGE_DONE: &str = \"
delete from {p}outbox_event
where ctid = any(array(
        select ctid from {p}outbox_event
        where status in (0, 1, 2) and created_at < clock_timestamp() - $1 * interval '1 microsecond'
        limit $2
    ))\";",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "rows-of-dead-writers",
        what: "never reclaims a leased row whose writer has died",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/local_events.rs",
            from: "if self.is_reclaiming || self.lapsed.is_empty() {",
            to: "if self.is_reclaiming || self.lapsed.len() < usize::MAX {",
        }],
        catch: Catch::Tests("memory::local_queue::the_row_of_a_dead_writer"),
    },
    Mutant {
        name: "inbox-forgets",
        what: "lets every delivery of an event pass the inbox",
        edits: &[Edit {
            file: "crates/pillarbox/src/tx/sqlx/postgres.rs",
            from: "exists (select from noted) from state",
            to: "true from state",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "hot-before-older",
        what: "does not check for older events of the key before local delivery",
        edits: &[Edit {
            file: "crates/pillarbox/src/tx/sqlx/postgres.rs",
            from: "and older.status + 0 = {new}",
            to: "and older.status + 0 = 9",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "savepoint-keeps-events",
        what: "keeps the events of a savepoint that was rolled back",
        edits: &[Edit {
            file: "crates/pillarbox/src/outbox/savepoint.rs",
            from: "self.tx.buffer.truncate(self.buffered);",
            to: "self.tx.buffer.truncate(usize::MAX);",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "tenant-is-lost",
        what: "drops the tenant of events read from the table",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/row.rs",
            from: "tenant_id: self.next()?,",
            to: "tenant_id: self.next::<Option<String>>()?.filter(String::is_empty),",
        }],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "full-lane-drops",
        what: "drops the last event of a transaction when the local queue is full",
        edits: &[
            Edit {
                file: "crates/pillarbox/src/outbox/transaction.rs",
                from: "let reservation = queue.as_ref().and_then(|queue| queue.reserve(buffer));",
                to: "let reservation = queue.as_ref().and_then(|queue| queue.reserve(buffer));
        if reservation.is_none() && queue.is_some() && buffer.len() > 1 {
            buffer.pop();
        }",
            },
            Edit {
                file: "crates/pillarbox/src/local_queue.rs",
                from: "Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 3))",
                to: "Semaphore::new(usize::from(most > 0))",
            },
        ],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "application-clock-in-leases",
        what: "renews a lease by the relay's own clock",
        edits: &[
            Edit {
                file: "crates/pillarbox/src/store/postgres/sql/ownership.rs",
                from: "set lease_until = clock_timestamp() + $2",
                to: "set lease_until = to_timestamp(0) + $2",
            },
            Edit {
                file: "crates/pillarbox/src/store/postgres/ownership.rs",
                from: "let query = self
            .query(sql::RENEW)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length))",
                to: "let now = crate::clock::Clock::now(&crate::clock::SystemClock).unix_micros();
        let query = self
            .query(sql::RENEW)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length) + now)",
            },
        ],
        catch: COMBINED_FAULTS,
    },
    Mutant {
        name: "hand-over-at-once",
        what: "releases a shard while events of it are in delivery",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues.rs",
            from: "self.rows.in_flight().of_shard(*shard) == 0;",
            to: "self.rows.in_flight().of_shard(*shard) < u32::MAX;",
        }],
        catch: Catch::Tests("memory::share"),
    },
    Mutant {
        name: "unknown-is-committed",
        what: "delivers the events of a commit whose outcome is unknown",
        edits: &[Edit {
            file: "crates/pillarbox/src/outbox/transaction.rs",
            from: "Err(error) if error.kind() == ErrorKind::CommitUnknown => {}",
            to: "Err(error) if error.kind() == ErrorKind::CommitUnknown => self.committed(),",
        }],
        catch: Catch::Scenario(&["--store", "postgres", "connection_cuts"]),
    },
    Mutant {
        name: "settle-without-fence",
        what: "settles without checking the shard's owner",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/sqlite/sql/events.rs",
            from: "where shard = ?2 and owner = ?4 and epoch = \",\n            $epoch,",
            to: "where shard = ?2 and ?4 is not null and epoch >= 0 * \",\n            $epoch,",
        }],
        catch: Catch::Tests("sqlite::fence"),
    },
    Mutant {
        name: "late-commits-are-passed",
        what: "reports no pending predecessors below the cursor",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/row.rs",
            from: "_ => Predecessor::Unread,",
            to: "_ => Predecessor::Nothing,",
        }],
        catch: Catch::Tests("postgres::order"),
    },
    Mutant {
        name: "rows-behind-a-waiting-one-start",
        what: "starts a row although an older one of its key is waiting",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queues.rs",
            from: "Predecessor::Waiting => return None,",
            to: "Predecessor::Waiting => {}",
        }],
        catch: Catch::Tests("shard_queues::tests::under_any_schedule"),
    },
    Mutant {
        name: "a-read-under-way-lets-a-key-go-on",
        what: "lets a read that began before a postponement start the next event of the key",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queues.rs",
            from: "if !self.is_reading {\n            self.end_turn(key, seq);",
            to: "if self.keys.len() < usize::MAX {\n            self.end_turn(key, seq);",
        }],
        catch: Catch::Tests("shard_queues::tests::under_any_schedule"),
    },
    Mutant {
        name: "nobody-looks-below-the-base",
        what: "never reads the rest of a key that an operator unblocked",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/shard.rs",
            from: "self.heads.iter_mut().for_each(HeadScan::want);\n        if self.more",
            to: "if self.more",
        }],
        catch: Catch::Tests("shard_queues::tests::"),
    },
    Mutant {
        name: "due-rows-stay-waiting",
        what: "does not promote a row that is due",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/sql/events.rs",
            from: "set status = {new}",
            to: "set status = {waiting}",
        }],
        catch: Catch::Tests("store::postgres::promote"),
    },
    Mutant {
        name: "watermark",
        what: "starts reads above the newest event seen",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/cursor.rs",
            from: "return ReadStart { floor: skipped, skipped, wish: Some(self.wishes) };",
            to: "return ReadStart { floor: skipped.max(self.newest), skipped, wish: Some(self.wishes) };",
        }],
        catch: Catch::Tests("postgres::read::a_late_commit"),
    },
    Mutant {
        name: "suspects-go-uncounted",
        what: "does not count crashes of events with row claims",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/ready_rows.rs",
            from: "matches!(&self.row, Row::Claimed(row, _) if row.lapsed)",
            to: "matches!(&self.row, Row::Claimed(row, _) if row.lapsed && row.attempts == u32::MAX)",
        }],
        catch: Catch::Tests("memory::crash::an_event_that_kills_every_relay_is_given_up::by_rows"),
    },
    Mutant {
        name: "stop-without-last-read",
        what: "stops without a last read for events committed before",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/shard_loop.rs",
            from: "if !self.has_due_events() {",
            to: "if !self.has_due_events() || instant() <= until {",
        }],
        catch: Catch::Tests("memory::stop"),
    },
    Mutant {
        name: "locked-rows-stay-in-the-batch",
        what: "settles locked rows in one batch with the others",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/settle/batch.rs",
            from: "if !locked.is_empty() {",
            to: "if locked.len() > usize::MAX / 2 {",
        }],
        catch: Catch::Tests("postgres::lock::a_locked_row_does_not_block_other_settles"),
    },
    Mutant {
        name: "settle-without-token",
        what: "settles without the token, so that a late verdict undoes a replay",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/memory/events.rs",
            from: "event.is_open() && event.token == settlement.token && event.shard == settlement.shard",
            to: "event.is_open() && event.shard == settlement.shard",
        }],
        catch: Catch::Tests("memory::replay"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::root;

    #[test]
    fn every_mutant_fits_the_tree() {
        for mutant in MUTANTS {
            for edit in mutant.edits {
                let text = std::fs::read_to_string(root().join(edit.file)).unwrap();
                assert_ne!(edit.apply(&text).unwrap(), text, "{}", mutant.name);
            }
        }
    }

    #[test]
    fn every_mutant_has_a_name_of_its_own() {
        let mut names: Vec<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        names.sort_unstable();
        names.dedup();

        assert_eq!(names.len(), MUTANTS.len());
        assert!(names.len() >= 10);
    }
}
