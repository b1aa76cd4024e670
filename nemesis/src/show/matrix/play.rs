//! A case under way: a process crashes at a point, others go on, and everything is counted.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use pillarbox::crash_point::VARIABLE;
use pillarbox::store::{Action as Operate, Filter};
use pillarbox::{Admin, RelaySettings};

use super::case::{Case, Crash, Outcome, Played, Wrong};
use super::scene::{LEASE, LONG_LEASE, Scene, is_end_of_relay};
use crate::Result;
use crate::actor::ACCOUNTS;
use crate::check::{Faults, Report};
use crate::log::{Entry, parse};
use crate::orders::{Orders, Trouble};
use crate::place::{Place, Server};
use crate::process::{Process, Program};
use crate::show::wait;

/// How long a point may keep us waiting, and a backlog of some fifty events.
const PATIENCE: Duration = Duration::from_secs(240);

/// A case under way.
pub(super) struct Play {
    case: Case,
    pub(super) place: Place,
    program: Program,
    faults: Faults,
}

impl Play {
    /// In a place of its own.
    pub(super) async fn open(
        case: Case,
        server: Server,
        base: &str,
        number: usize,
        program: Program,
    ) -> Result<Self> {
        let name = format!("matrix{number}");
        let place = if case.scene == Scene::Migrating {
            Place::bare(server, base, &name).await?
        } else {
            Place::open(server, base, &name, ACCOUNTS).await?
        };
        Ok(Self { case, place, program, faults: Faults::default() })
    }

    pub(super) async fn run(&mut self) -> Played {
        match self.case.scene {
            Scene::Migrating => self.migrate().await,
            Scene::Operating => self.operate().await,
            scene if scene.is_leaving() => self.leave().await,
            _ => self.relay().await,
        }
    }

    /// It relays; after the crash it goes on alone if it can, else another one does.
    async fn relay(&mut self) -> Played {
        let role = if self.case.scene.has_heir() {
            self.bequeath().await?;
            "relay"
        } else {
            "act"
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
            None if !is_alone => Some(self.start("act", "b")?),
            beside => beside,
        };
        self.resume(survivor.as_ref()).await?;
        let ends_well = is_alone || self.case.crash == Crash::Stop;
        if role == "act" && survivor.is_some() && ends_well {
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
    async fn leave(&mut self) -> Played {
        let leaving = self.start_armed("leave")?;
        let survivor = self.crash(leaving).await?;
        let other = self.start("act", "b")?;
        self.resume(survivor.as_ref()).await?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PATIENCE).await;
            if self.case.crash != Crash::Panic {
                ended?;
            }
        }
        self.wrote("b").await?;
        self.drained().await?;
        Ok(other.stop().await?)
    }

    /// A relay has given up some events; the operator who replays them crashes.
    async fn operate(&mut self) -> Played {
        let relay = self.start("act", "b")?;
        self.wrote("b").await?;
        let given_up = async || {
            let stats = self.place.store.stats().await?;
            Ok(stats.new + stats.waiting == 0 && stats.dead > 0)
        };
        wait(PATIENCE, given_up).await?;
        let crashing = self.start_armed("operate")?;
        let survivor = self.crash(crashing).await?;
        fs::write(self.place.healed(), "")?;
        self.resume(survivor.as_ref()).await?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PATIENCE).await;
            if self.case.crash == Crash::Stop {
                ended?;
            }
        }
        let is_drained = async || {
            let all = Admin::new(self.place.store.clone());
            all.operate_matching(Operate::Replay, Filter::default()).run().await?;
            let stats = self.place.store.stats().await?;
            Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
        };
        wait(PATIENCE, is_drained).await?;
        Ok(relay.stop().await?)
    }

    /// The tables are half made when it crashes; another one makes them.
    async fn migrate(&mut self) -> Played {
        let crashing = self.start_armed("migrate")?;
        let survivor = self.crash(crashing).await?;
        let store = self.place.store.clone();
        let (migrated, resumed) = tokio::join!(store.migrate(), self.resume(survivor.as_ref()));
        resumed?;
        migrated?;
        if let Some(mut survivor) = survivor {
            let ended = survivor.ended(PATIENCE).await;
            if self.case.crash == Crash::Stop {
                ended?;
            }
        }
        self.place.bank.prepare(ACCOUNTS).await?;
        let relay = self.start("act", "b")?;
        self.wrote("b").await?;
        self.drained().await?;
        Ok(relay.stop().await?)
    }

    /// Somebody writes, delivers a little, and is killed before it says so.
    async fn bequeath(&mut self) -> Played {
        let is_by_rows = self.case.scene == Scene::RowHeir;
        let settle = if is_by_rows { "rows.settle.before" } else { "hot.settle.before" };
        let program = self.program.clone().env(VARIABLE, &format!("{settle}:1:kill"));
        let mut dying = program.start("act", &self.orders("x"), &self.errors("x"))?;
        let died = dying.died().await;
        died.map_err(|error| Wrong::Invalid(format!("nobody to inherit from: {error}")))?;
        self.faults.killed("x");
        Ok(())
    }

    /// Waits until the crash has happened. Returns the process, if there still is one.
    async fn crash(&mut self, mut process: Process) -> Played<Option<Process>> {
        let mark = format!("crash point {}: ", self.case.point.name);
        let has_crashed =
            async || Ok(fs::read_to_string(self.errors("a")).is_ok_and(|it| it.contains(&mark)));
        let waited = wait(PATIENCE, has_crashed).await;
        waited.map_err(|_| Wrong::Invalid("never passed".to_owned()))?;
        let invalid = |why: String| Wrong::Invalid(why);
        match self.case.crash {
            Crash::Kill => {
                process.died().await.map_err(|error| invalid(error.to_string()))?;
                self.faults.killed("a");
                return Ok(None);
            }
            Crash::Stop => {
                let stands = wait(PATIENCE, async || process.stands_still()).await;
                stands.map_err(|error| invalid(format!("never stood still: {error}")))?;
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
        if self.case.scene != Scene::Sharing {
            return Ok(None);
        }
        self.told("a", |it| matches!(it, Entry::Took { .. })).await?;
        Ok(Some(self.start("act", "b")?))
    }

    async fn wrote(&self, life: &str) -> Result {
        self.told(life, |it| it == Entry::Wrote).await
    }

    /// Waits until a life has told something in the log.
    async fn told(&self, life: &str, what: fn(Entry<'_>) -> bool) -> Result {
        let is_told = async || {
            let log = fs::read_to_string(self.place.log()).unwrap_or_default();
            let mut lines = log.lines().filter_map(parse);
            Ok(lines.any(|line| line.life == life && what(line.entry)))
        };
        let waited = wait(PATIENCE, is_told).await;
        waited.map_err(|error| format!("{life} does not go on: {error}").into())
    }

    /// A purge that was interrupted is taken up again.
    async fn purged(&self) -> Result {
        if self.case.scene != Scene::Purging {
            return Ok(());
        }
        let is_purged = async || Ok(self.place.store.breakdown().await?.done == 0);
        let waited = wait(PATIENCE, is_purged).await;
        waited.map_err(|error| format!("nobody purges: {error}").into())
    }

    async fn drained(&self) -> Result {
        let is_drained = async || {
            let stats = self.place.store.stats().await?;
            Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
        };
        let drained = wait(PATIENCE, is_drained).await;
        let stats = self.place.store.stats().await;
        drained.map_err(|error| format!("something is stuck ({error}): {stats:?}").into())
    }

    pub(super) async fn outcome(&self) -> Played<Outcome> {
        let truth = self.place.bank.truth().await?;
        let log = self.place.read_log()?;
        let report = Report::of(&truth, &log, &self.faults);
        let effects = self.place.bank.effects().await?;
        let pairs = effects.iter().zip(&truth);
        let wrong_effects =
            pairs.map(|(effect, account)| effect.events.abs_diff(account.events())).sum();
        Outcome { report, wrong_effects }.judged(&log)
    }

    fn start_armed(&self, role: &str) -> Result<Process> {
        let Case { point, nth, crash, .. } = self.case;
        let order = format!("{}:{nth}:{}", point.name, crash.name());
        let program = self.program.clone().env(VARIABLE, &order);
        program.start(role, &self.orders("a"), &self.errors("a"))
    }

    fn start(&self, role: &str, life: &str) -> Result<Process> {
        self.program.start(role, &self.orders(life), &self.errors(life))
    }

    fn orders(&self, life: &str) -> Orders {
        Orders {
            url: self.place.url.clone(),
            log: self.place.log(),
            life: life.to_owned(),
            settings: self.settings(life),
            listener: self.case.scene.listener(),
            trouble: Trouble::None,
            writing: None,
            backoff: 500,
            ahead: 0,
        }
    }

    /// One that nothing happens to must not lose a lease or give up on a listener because the machine
    /// is busy: what it delivers twice then would be nobody's fault.
    fn settings(&self, life: &str) -> RelaySettings {
        let settings = self.case.scene.settings();
        if life != "b" {
            return settings;
        }
        RelaySettings { lease: LONG_LEASE, delivery_timeout: LONG_LEASE / 3, ..settings }
    }

    fn errors(&self, life: &str) -> PathBuf {
        self.place.dir.join(format!("{life}.err"))
    }
}
