//! A slot: one process through all its lives, and what is done to it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::{Clock as _, SystemClock};

use super::stage::Stage;
use crate::Result;
use crate::chance::Chance;
use crate::check::Faults;
use crate::log::{Entry, Line, parse};
use crate::orders::Orders;
use crate::process::{Process, Program};
use crate::proxy::{Proxy, Way, Weather, authority};

/// No show has more slots.
const MOST: u64 = 6;

/// What was done to all lives of a slot, and when.
#[derive(Debug, Default)]
pub(super) struct Torment {
    pub(super) faults: Faults,
    /// Whom, and when in microseconds since 1970.
    pub(super) kills: Vec<(String, i64)>,
    pub(super) pauses: usize,
    /// Graceful restarts.
    pub(super) restarts: usize,
    pub(super) cuts: usize,
    /// Times in which nothing went through, in a direction or in both.
    pub(super) silences: usize,
    /// Times in which no connection could be made.
    pub(super) refusals: usize,
    /// Times in which everything was late.
    pub(super) delays: usize,
}

impl Torment {
    pub(super) fn extend(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.kills.extend(other.kills);
        self.pauses += other.pauses;
        self.restarts += other.restarts;
        self.cuts += other.cuts;
        self.silences += other.silences;
        self.refusals += other.refusals;
        self.delays += other.delays;
    }

    /// How long after each kill somebody else took shards over.
    pub(super) fn takeovers(&self, log: &str) -> Vec<Duration> {
        let took = |line: &Line<'_>| matches!(line.entry, Entry::Took(count) if count > 0);
        let taken: Vec<Line<'_>> = log.lines().filter_map(parse).filter(took).collect();
        let after = |(life, at): &(String, i64)| {
            let next = taken.iter().filter(|line| line.life != life && line.at > *at);
            next.map(|line| line.at - at).min()
        };
        let micros = self.kills.iter().filter_map(after);
        micros.map(|micros| Duration::from_micros(micros.unsigned_abs())).collect()
    }

    /// A kill, at this moment.
    pub(super) async fn kill(&mut self, process: Process) -> Result {
        self.faults.killed(process.life());
        self.kills.push((process.life().to_owned(), SystemClock.now().unix_micros()));
        process.kill().await
    }

    /// A pause for so long.
    pub(super) async fn pause(&mut self, process: &Process, length: Duration) -> Result {
        self.pauses += 1;
        self.faults.paused(process.life());
        process.pause().await?;
        tokio::time::sleep(length).await;
        process.resume().await
    }
}

/// One process of several.
#[derive(Debug)]
pub(super) struct Slot {
    name: String,
    number: u64,
    role: &'static str,
    orders: Orders,
    process: Option<Process>,
    torment: Torment,
    lease: Duration,
    program: Program,
    errors: PathBuf,
    started: u64,
    /// What it reaches the database by, if that can be disturbed.
    proxy: Option<Proxy>,
}

impl Slot {
    /// A process of its first life.
    pub(super) fn start(
        stage: &Stage,
        number: u64,
        role: &'static str,
        orders: Orders,
    ) -> Result<Self> {
        let mut slot = Self {
            name: format!("{}{number}", role.get(..1).unwrap_or_default()),
            number,
            role,
            lease: orders.settings.lease,
            orders,
            process: None,
            torment: Torment::default(),
            program: stage.program.clone(),
            errors: stage.place.errors(),
            started: 0,
            proxy: None,
        };
        slot.live_again()?;
        Ok(slot)
    }

    /// The same behind a proxy of its own.
    pub(super) async fn behind_proxy(
        stage: &Stage,
        number: u64,
        role: &'static str,
        mut orders: Orders,
    ) -> Result<Self> {
        let proxy = Proxy::start(authority(&orders.url)?, None).await?;
        orders.url = proxy.in_front_of(&orders.url)?;
        Ok(Self { proxy: Some(proxy), ..Self::start(stage, number, role, orders)? })
    }

    fn live_again(&mut self) -> Result {
        self.started += 1;
        self.orders.life = format!("{}.{}", self.name, self.started);
        self.process = Some(self.program.start(self.role, &self.orders, &self.errors)?);
        Ok(())
    }

    /// One thing after another, until it is over; then everything is well again. Each kind once,
    /// from one that is another for each slot, and then by chance.
    pub(super) async fn torment(
        mut self,
        mut chance: Chance,
        over: Arc<AtomicBool>,
    ) -> Result<Self> {
        let kinds = if self.proxy.is_some() { 8 } else { 3 };
        let first = self.number * kinds / MOST;
        let mut turns = first..first + kinds;
        while !over.load(Ordering::Relaxed) {
            tokio::time::sleep(chance.around(self.lease / 2)).await;
            let kind = turns.next().map_or_else(|| chance.below(kinds), |turn| turn % kinds);
            match kind {
                0 => self.kill(&mut chance).await?,
                1 => self.pause(&mut chance).await?,
                2 => self.stop().await?,
                3 => self.cut(),
                4 => self.silence(Way::Both, &mut chance).await,
                5 => self.silence(one_way(&mut chance), &mut chance).await,
                6 => self.refuse(&mut chance).await,
                _ => self.delay(&mut chance).await,
            }
        }
        Ok(self)
    }

    /// Kills it for the last time, which is no part of its torment. Returns what that was.
    pub(super) async fn end(mut self) -> Result<Torment> {
        let process = self.process.take().ok_or("no process")?;
        self.torment.faults.killed(process.life());
        process.kill().await?;
        Ok(self.torment)
    }

    pub(super) fn running(&self) -> Result<&Process> {
        self.process.as_ref().ok_or_else(|| format!("{} has no process", self.name).into())
    }

    async fn kill(&mut self, chance: &mut Chance) -> Result {
        let process = self.process.take().ok_or("no process")?;
        self.torment.kill(process).await?;
        tokio::time::sleep(Duration::from_millis(chance.below(1000))).await;
        self.live_again()
    }

    async fn pause(&mut self, chance: &mut Chance) -> Result {
        let length = chance.around(self.lease * 3 / 2);
        let mut torment = std::mem::take(&mut self.torment);
        let paused = torment.pause(self.running()?, length).await;
        self.torment = torment;
        paused
    }

    /// A writer ends at once when it is asked to: that is a kill.
    async fn stop(&mut self) -> Result {
        let process = self.process.take().ok_or("no process")?;
        if self.role == "relay" {
            self.torment.restarts += 1;
            process.stop().await?;
        } else {
            self.torment.kill(process).await?;
        }
        self.live_again()
    }

    fn cut(&mut self) {
        if let (Some(proxy), Some(process)) = (&self.proxy, &self.process) {
            self.torment.cuts += 1;
            self.torment.faults.paused(process.life());
            proxy.cut_all();
        }
    }

    /// Longer than the lease, so that somebody else takes over meanwhile.
    async fn silence(&mut self, way: Way, chance: &mut Chance) {
        self.torment.silences += 1;
        self.weather(Weather::Deaf(way), chance.around(self.lease * 3 / 2)).await;
    }

    /// Without a connection that lasts, there is none to be had.
    async fn refuse(&mut self, chance: &mut Chance) {
        self.torment.refusals += 1;
        self.proxy.iter().for_each(Proxy::cut_all);
        self.weather(Weather::Closed, chance.around(self.lease * 3 / 2)).await;
    }

    async fn delay(&mut self, chance: &mut Chance) {
        self.torment.delays += 1;
        let by = Duration::from_millis(1 + chance.below(50));
        self.weather(Weather::Late(by), chance.around(self.lease)).await;
    }

    async fn weather(&mut self, weather: Weather, length: Duration) {
        let (Some(proxy), Some(process)) = (&self.proxy, &self.process) else { return };
        self.torment.faults.paused(process.life());
        proxy.set(weather);
        tokio::time::sleep(length).await;
        proxy.set(Weather::Fair);
    }
}

fn one_way(chance: &mut Chance) -> Way {
    if chance.below(2) == 0 { Way::There } else { Way::Back }
}
