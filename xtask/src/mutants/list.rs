//! The mutants: which lines are changed to what, and who is to notice.

use crate::Result;

/// A build that is broken on purpose.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) name: &'static str,
    /// What it does wrong.
    pub(super) what: &'static str,
    pub(super) edits: &'static [Edit],
    pub(super) catch: Catch,
}

/// A text that is there once, and what is put in its place.
#[derive(Debug)]
pub(super) struct Edit {
    pub(super) file: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Who is to notice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Catch {
    /// A show, with its options.
    Show(&'static [&'static str]),
    /// The tests whose name has this in it.
    Tests(&'static str),
}

impl Catch {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Show(words) => words.last().copied().unwrap_or("show"),
            Self::Tests(name) => name,
        }
    }
}

impl Edit {
    pub(super) fn apply(&self, text: &str) -> Result<String> {
        if text.matches(self.from).count() == 1 {
            return Ok(text.replacen(self.from, self.to, 1));
        }
        Err(format!("{} has not this, or more than once:\n{}", self.file, self.from).into())
    }
}

const STORM: Catch = Catch::Show(&["--quick", "--store", "postgres", "--seconds", "20", "storm"]);

pub(super) const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "settle-before-deliver",
        what: "an event is settled while its listener still works on it",
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
        catch: STORM,
    },
    Mutant {
        name: "failures-are-successes",
        what: "a batch is acknowledged whole, whatever became of each event",
        edits: &[Edit {
            file: "crates/pillarbox/src/retry.rs",
            from: "let Err(failure) = delivered.outcome else {",
            to: "let Err(failure) = delivered.outcome.or(Ok::<(), &Failed>(())) else {",
        }],
        catch: STORM,
    },
    Mutant {
        name: "two-of-a-key-at-once",
        what: "the next event of a key starts beside the one before",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queue.rs",
            from: "if self.busy.is_some() || self.parked.is_some() {",
            to: "if self.parked.is_some() {",
        }],
        catch: STORM,
    },
    Mutant {
        name: "purge-of-what-waits",
        what: "the purge goes by age alone",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/sql/admin.rs",
            from: "pub(in super::super) const PURGE_DONE: &str = purge_final!(\"1\", \"(1)\");",
            to: "pub(in super::super) const PURGE_DONE: &str = \"
delete from {p}outbox_event
where ctid = any(array(
        select ctid from {p}outbox_event
        where status in (0, 1, 2) and created_at < clock_timestamp() - $1 * interval '1 microsecond'
        limit $2
    ))\";",
        }],
        catch: STORM,
    },
    Mutant {
        name: "rows-of-dead-writers",
        what: "a hot row whose writer died is never taken over",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/local_events.rs",
            from: "if self.is_reclaiming || self.lapsed.is_empty() {",
            to: "if self.is_reclaiming || self.lapsed.len() < usize::MAX {",
        }],
        catch: Catch::Tests("memory::local_queue::the_row_of_a_dead_writer"),
    },
    Mutant {
        name: "inbox-forgets",
        what: "the inbox lets every arrival have its effect",
        edits: &[Edit {
            file: "crates/pillarbox/src/tx/sqlx/postgres.rs",
            from: "exists (select from noted) from state",
            to: "true from state",
        }],
        catch: STORM,
    },
    Mutant {
        name: "hot-before-older",
        what: "the hot path does not look for older events of the key",
        edits: &[Edit {
            file: "crates/pillarbox/src/tx/sqlx/postgres.rs",
            from: "and older.status + 0 = 0",
            to: "and older.status + 0 = 9",
        }],
        catch: STORM,
    },
    Mutant {
        name: "savepoint-keeps-events",
        what: "a rollback to a savepoint does not take its events back",
        edits: &[Edit {
            file: "crates/pillarbox/src/emit/savepoint.rs",
            from: "self.tx.buffer.truncate(self.buffered);",
            to: "self.tx.buffer.truncate(usize::MAX);",
        }],
        catch: STORM,
    },
    Mutant {
        name: "tenant-is-lost",
        what: "an event that is read from the table has no tenant",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/read.rs",
            from: "tenant_id: self.next()?,",
            to: "tenant_id: self.next::<Option<String>>()?.filter(String::is_empty),",
        }],
        catch: STORM,
    },
    Mutant {
        name: "full-lane-drops",
        what: "of a transaction that finds the hot lane full, the last event is not written",
        edits: &[
            Edit {
                file: "crates/pillarbox/src/emit/outbox_tx.rs",
                from: "let held = outbox.hot.as_ref().and_then(|lane| lane.reserve(buffer));",
                to: "let held = outbox.hot.as_ref().and_then(|lane| lane.reserve(buffer));
        if held.is_none() && outbox.hot.is_some() && buffer.len() > 1 {
            buffer.pop();
        }",
            },
            Edit {
                file: "crates/pillarbox/src/local_queue.rs",
                from: "Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 3))",
                to: "Semaphore::new(usize::from(most > 0))",
            },
        ],
        catch: STORM,
    },
    Mutant {
        name: "application-clock-in-leases",
        what: "a lease is renewed by the relay's own clock",
        edits: &[
            Edit {
                file: "crates/pillarbox/src/store/postgres/sql.rs",
                from: "set lease_until = clock_timestamp() + $2",
                to: "set lease_until = to_timestamp(0) + $2",
            },
            Edit {
                file: "crates/pillarbox/src/store/postgres/lease.rs",
                from: "let renewed = sqlx::query(store.sql(sql::RENEW))
        .persistent(store.named)
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))",
                to: "let now = crate::clock::Clock::now(&crate::clock::SystemClock).unix_micros();
    let renewed = sqlx::query(store.sql(sql::RENEW))
        .persistent(store.named)
        .bind(lease.owner.as_str())
        .bind(micros(lease.length) + now)",
            },
        ],
        catch: STORM,
    },
    Mutant {
        name: "hand-over-at-once",
        what: "a shard is given back while events of it are in delivery",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues.rs",
            from: "self.rows.in_flight().of_shard(*shard) == 0;",
            to: "self.rows.in_flight().of_shard(*shard) < u32::MAX;",
        }],
        catch: Catch::Tests("memory::share"),
    },
    Mutant {
        name: "unknown-is-committed",
        what: "a commit whose answer was lost is handed over as if it had happened",
        edits: &[Edit {
            file: "crates/pillarbox/src/emit/outbox_tx.rs",
            from: "Err(error) if error.kind() == ErrorKind::CommitUnknown => {}",
            to: "Err(error) if error.kind() == ErrorKind::CommitUnknown => self.committed(),",
        }],
        catch: Catch::Show(&["--store", "postgres", "sweep"]),
    },
    Mutant {
        name: "settle-without-fence",
        what: "a settle does not ask whose the shard is",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/sqlite/sql.rs",
            from: "where shard = ?2 and owner = ?4 and epoch = \",\n            $epoch,",
            to: "where shard = ?2 and ?4 is not null and epoch >= 0 * \",\n            $epoch,",
        }],
        catch: Catch::Tests("sqlite::fence"),
    },
    Mutant {
        name: "late-commits-are-passed",
        what: "a read above a floor does not say what waits below it",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/read.rs",
            from: "_ => Predecessor::Unread,",
            to: "_ => Predecessor::Nothing,",
        }],
        catch: Catch::Tests("postgres::order"),
    },
    Mutant {
        name: "rows-behind-a-waiting-one-start",
        what: "a row starts although an older one of its key waits",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queues.rs",
            from: "Predecessor::Waiting => return None,",
            to: "Predecessor::Waiting => {}",
        }],
        catch: Catch::Tests("shard_queues::tests::under_any_schedule"),
    },
    Mutant {
        name: "a-read-under-way-lets-a-key-go-on",
        what: "an event was put off, and a read that began before starts the next one of its key",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/key_queues.rs",
            from: "if !self.is_reading {\n            self.end_turn(key, seq);",
            to: "if self.keys.len() < usize::MAX {\n            self.end_turn(key, seq);",
        }],
        catch: Catch::Tests("shard_queues::tests::under_any_schedule"),
    },
    Mutant {
        name: "nobody-looks-below-the-base",
        what: "the tail of a key that an operator lets go on is never read",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/shard.rs",
            from: "self.heads.iter_mut().for_each(HeadScan::want);\n        if self.more",
            to: "if self.more",
        }],
        catch: Catch::Tests("shard_queues::tests::"),
    },
    Mutant {
        name: "due-rows-stay-waiting",
        what: "a row whose time has come is not made new",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/postgres/sql/due.rs",
            from: "set status = 0",
            to: "set status = 2",
        }],
        catch: Catch::Tests("store::postgres::promote"),
    },
    Mutant {
        name: "watermark",
        what: "reads begin above what was seen",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/shard_queues/cursor.rs",
            from: "return ReadStart { floor: skipped, skipped, wish: Some(self.wishes) };",
            to: "return ReadStart { floor: skipped.max(self.newest), skipped, wish: Some(self.wishes) };",
        }],
        catch: Catch::Tests("postgres::read::a_commit_that_comes_late"),
    },
    Mutant {
        name: "suspects-go-uncounted",
        what: "with row claims, an event that kills relays is not counted",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/fetch/ready_rows.rs",
            from: "matches!(&self.row, Row::Claimed(row, _) if row.lapsed)",
            to: "matches!(&self.row, Row::Claimed(row, _) if row.lapsed && row.attempts == u32::MAX)",
        }],
        catch: Catch::Tests("memory::crash::a_row_that_kills"),
    },
    Mutant {
        name: "stop-without-last-read",
        what: "a stop does not look for what was committed before it",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/shard_loop.rs",
            from: "if !self.has_due_events() {",
            to: "if !self.has_due_events() || instant() <= until {",
        }],
        catch: Catch::Tests("memory::stop"),
    },
    Mutant {
        name: "locked-rows-stay-in-the-batch",
        what: "a row that another transaction has locked is settled with the others",
        edits: &[Edit {
            file: "crates/pillarbox/src/relay/settle/batch.rs",
            from: "if !locked.is_empty() {",
            to: "if locked.len() > usize::MAX / 2 {",
        }],
        catch: Catch::Tests("postgres::lock::it_keeps_no_other_from_being_settled"),
    },
    Mutant {
        name: "settle-without-token",
        what: "a verdict still under way swallows an operator's replay",
        edits: &[Edit {
            file: "crates/pillarbox/src/store/memory/state.rs",
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
