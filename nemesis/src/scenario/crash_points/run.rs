//! A case under way: a process crashes at a point, others go on, and everything is counted.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pillarbox::crash_point::VARIABLE;
use pillarbox::store::{Action as Operate, Filter};
use pillarbox::{Admin, RelaySettings};

use super::case::{Case, CaseError, CaseResult, Crash, Outcome};
use super::situation::{LEASE, LONG_LEASE, Situation, is_end_of_relay};
use crate::Result;
use crate::check::{Faults, Report};
use crate::config::ProcessConfig;
use crate::deployment::{Deployment, Server};
use crate::log::{Entry, parse};
use crate::process::{Process, Program};
use crate::role::{ACCOUNTS, Role};
use crate::scenario::wait_until;

/// How long a point may keep us waiting, and a backlog of some fifty events.
const PHASE_TIMEOUT: Duration = Duration::from_secs(240);

/// A case under way.
pub(super) struct CaseRun {
    case: Case,
    pub(super) deployment: Deployment,
    program: Program,
    faults: Faults,
}

impl CaseRun {
    /// In a place of its own.
    pub(super) async fn open(
        case: Case,
        server: Server,
        base: &str,
        number: usize,
        program: Program,
    ) -> Result<Self> {
        let name = format!("matrix{number}");
        let deployment = if case.situation == Situation::Migrating {
            Deployment::bare(server, base, &name).await?
        } else {
            Deployment::open(server, base, &name, ACCOUNTS).await?
        };
        Ok(Self { case, deployment, program, faults: Faults::default() })
    }

    pub(super) async fn run(&mut self) -> CaseResult {
        match self.case.situation {
            Situation::Migrating => self.migrate().await,
            Situation::Operating => self.operate().await,
            situation if situation.is_leaving() => self.leave().await,
            _ => self.relay().await,
        }
    }

    /// It relays; after the crash it goes on alone if it can, else another one does.
    async fn relay(&mut self) -> CaseResult {
        let role = if self.case.situation.has_successor() {
            self.leave_unsettled().await?;
            Role::Relay
        } else {
            Role::RelayAndWrite
        };
        let crashing = self.start_armed(role)?;
        let beside = self.beside().await?;
        let survivor = self.crash(crashing).await?;
        let is_alone = match self.case.crash {
            Crash::Kill | Crash::Stop => false,
            Crash::Panic => !is_end_of_relay(self.case.point.name),
            Crash::Error => true,
        };
        let other = match beside {
            None if !is_alone => Some(self.start(Role::RelayAndWrite, "b")?),
            beside => beside,
        };
        self.resume(survivor.as_ref()).await?;
        let ends_well = is_alone || self.case.crash == Crash::Stop;
        if role == Role::RelayAndWrite && survivor.is_some() && ends_well {
            self.wrote("a").await?;
        }
        if other.is_some() {
            self.wrote("b").await?;
        }
        self.drained().await?;
        self.purged().await?;
        if let Some(survivor) = survivor {
            let ended = survivor.stop().await;
            if ends_well {
                ended?;
            }
        }
        if let Some(other) = other {
            other.stop().await?;
        }
        Ok(())
    }

    /// It stops by itself, and another one goes on with what it leaves behind.
    async fn leave(&mut self) -> CaseResult {
        let leaving = self.start_armed(Role::StopUnderLoad)?;
        let survivor = self.crash(leaving).await?;
        let other = self.start(Role::RelayAndWrite, "b")?;
        self.resume(survivor.as_ref()).await?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PHASE_TIMEOUT).await;
            if self.case.crash != Crash::Panic {
                ended?;
            }
        }
        self.wrote("b").await?;
        self.drained().await?;
        Ok(other.stop().await?)
    }

    /// A relay has given up some events; the operator who replays them crashes.
    async fn operate(&mut self) -> CaseResult {
        let relay = self.start(Role::RelayAndWrite, "b")?;
        self.wrote("b").await?;
        let given_up = async || {
            let stats = self.deployment.store.stats().await?;
            Ok(stats.new + stats.waiting == 0 && stats.dead > 0)
        };
        wait_until(PHASE_TIMEOUT, given_up).await?;
        let crashing = self.start_armed(Role::Replay)?;
        let survivor = self.crash(crashing).await?;
        fs::write(self.deployment.healed(), "")?;
        self.resume(survivor.as_ref()).await?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PHASE_TIMEOUT).await;
            if self.case.crash == Crash::Stop {
                ended?;
            }
        }
        let is_drained = async || {
            let all = Admin::new(self.deployment.store.clone());
            all.operate_matching(Operate::Replay, Filter::default()).run().await?;
            let stats = self.deployment.store.stats().await?;
            Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
        };
        wait_until(PHASE_TIMEOUT, is_drained).await?;
        Ok(relay.stop().await?)
    }

    /// The tables are half made when it crashes; another one makes them.
    async fn migrate(&mut self) -> CaseResult {
        let crashing = self.start_armed(Role::Migrate)?;
        let survivor = self.crash(crashing).await?;
        let store = self.deployment.store.clone();
        let (migrated, resumed) = tokio::join!(store.migrate(), self.resume(survivor.as_ref()));
        resumed?;
        migrated?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PHASE_TIMEOUT).await;
            if self.case.crash == Crash::Stop {
                ended?;
            }
        }
        self.deployment.bank.prepare(ACCOUNTS).await?;
        let relay = self.start(Role::RelayAndWrite, "b")?;
        self.wrote("b").await?;
        self.drained().await?;
        Ok(relay.stop().await?)
    }

    /// Somebody writes, delivers a little, and is killed before it says so.
    async fn leave_unsettled(&mut self) -> CaseResult {
        let is_by_rows = self.case.situation == Situation::RowSuccessor;
        let settle = if is_by_rows { "rows.settle.before" } else { "hot.settle.before" };
        let program = self.program.clone().env(VARIABLE, &format!("{settle}:1:kill"));
        let mut dying = program.start(Role::RelayAndWrite, &self.config("x"), &self.errors("x"))?;
        let died = dying.died().await;
        died.map_err(|error| {
            CaseError::Invalid(format!("the predecessor did not crash: {error}"))
        })?;
        self.faults.killed("x");
        Ok(())
    }

    /// Waits until the crash has happened. Returns the process, if there still is one.
    async fn crash(&mut self, mut process: Process) -> CaseResult<Option<Process>> {
        let mark = format!("crash point {}: ", self.case.point.name);
        let has_crashed =
            async || Ok(fs::read_to_string(self.errors("a")).is_ok_and(|it| it.contains(&mark)));
        let waited = wait_until(PHASE_TIMEOUT, has_crashed).await;
        waited.map_err(|_| CaseError::Invalid("never passed".to_owned()))?;
        let invalid = |why: String| CaseError::Invalid(why);
        match self.case.crash {
            Crash::Kill => {
                process.died().await.map_err(|error| invalid(error.to_string()))?;
                self.faults.killed("a");
                return Ok(None);
            }
            Crash::Stop => {
                let stands = wait_until(PHASE_TIMEOUT, async || process.stands_still()).await;
                stands.map_err(|error| invalid(format!("never paused: {error}")))?;
            }
            Crash::Panic | Crash::Error => {}
        }
        self.faults.paused("a");
        Ok(Some(process))
    }

    /// One that stands still does so for longer than its lease, while others go on.
    async fn resume(&self, survivor: Option<&Process>) -> Result {
        let Some(paused) = survivor.filter(|_| self.case.crash == Crash::Stop) else {
            return Ok(());
        };
        tokio::time::sleep(LEASE * 3 / 2).await;
        paused.resume().await
    }

    /// One that comes when it has all shards, and gets some of them.
    async fn beside(&self) -> Result<Option<Process>> {
        if self.case.situation != Situation::Sharing {
            return Ok(None);
        }
        self.told("a", |it| matches!(it, Entry::ShardsAcquired { .. })).await?;
        Ok(Some(self.start(Role::RelayAndWrite, "b")?))
    }

    async fn wrote(&self, incarnation: &str) -> Result {
        self.told(incarnation, |it| it == Entry::WritesFinished).await
    }

    /// Waits until an incarnation has told something in the log.
    async fn told(&self, incarnation: &str, what: fn(Entry<'_>) -> bool) -> Result {
        let is_told = async || {
            let log = fs::read_to_string(self.deployment.log()).unwrap_or_default();
            let mut lines = log.lines().filter_map(parse);
            Ok(lines.any(|line| line.incarnation == incarnation && what(line.entry)))
        };
        let waited = wait_until(PHASE_TIMEOUT, is_told).await;
        waited.map_err(|error| format!("{incarnation} does not continue: {error}").into())
    }

    /// A purge that was interrupted is taken up again.
    async fn purged(&self) -> Result {
        if self.case.situation != Situation::Purging {
            return Ok(());
        }
        let is_purged = async || Ok(self.deployment.store.breakdown().await?.done == 0);
        let waited = wait_until(PHASE_TIMEOUT, is_purged).await;
        waited.map_err(|error| format!("the purge does not continue: {error}").into())
    }

    async fn drained(&self) -> Result {
        let is_drained = async || {
            let stats = self.deployment.store.stats().await?;
            Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
        };
        let drained = wait_until(PHASE_TIMEOUT, is_drained).await;
        let stats = self.deployment.store.stats().await;
        drained.map_err(|error| format!("events are not delivered ({error}): {stats:?}").into())
    }

    pub(super) async fn outcome(&self) -> CaseResult<Outcome> {
        let committed = self.deployment.bank.committed().await?;
        let log = self.deployment.read_log()?;
        let report = Report::of(&committed, &log, &self.faults);
        let effects = self.deployment.bank.effects().await?;
        let pairs = effects.iter().zip(&committed);
        let wrong_effects =
            pairs.map(|(effect, account)| effect.events.abs_diff(account.events())).sum();
        Outcome { report, wrong_effects }.judged(&log)
    }

    fn start_armed(&self, role: Role) -> Result<Process> {
        let Case { point, nth, crash, .. } = self.case;
        let order = format!("{}:{nth}:{}", point.name, crash.name());
        let program = self.program.clone().env(VARIABLE, &order);
        program.start(role, &self.config("a"), &self.errors("a"))
    }

    fn start(&self, role: Role, incarnation: &str) -> Result<Process> {
        self.program.start(role, &self.config(incarnation), &self.errors(incarnation))
    }

    fn config(&self, incarnation: &str) -> ProcessConfig {
        ProcessConfig {
            listener: self.case.situation.listener(),
            backoff: 500,
            ..ProcessConfig::relay(&self.deployment, incarnation, self.settings(incarnation))
        }
    }

    /// One that nothing happens to must not lose a lease or give up on a listener because the machine
    /// is busy: what it delivers twice then would be nobody's fault.
    fn settings(&self, incarnation: &str) -> RelaySettings {
        let settings = self.case.situation.settings();
        if incarnation != "b" {
            return settings;
        }
        RelaySettings { lease: LONG_LEASE, delivery_timeout: LONG_LEASE / 3, ..settings }
    }

    fn errors(&self, incarnation: &str) -> PathBuf {
        self.deployment.dir.join(format!("{incarnation}.err"))
    }
}
