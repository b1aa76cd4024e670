//! A slot: one process through all its lives, and what is done to it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::PATIENCE;
use super::stage::{Stage, now};
use super::torment::{Kind, Torment};
use crate::Result;
use crate::bank::Bank;
use crate::chance::Chance;
use crate::log::{Entry, Log};
use crate::orders::Orders;
use crate::process::{Process, Program};
use crate::proxy::{Ending, Proxy, Trap, Way, Weather, authority};

/// One process of several.
#[derive(Debug)]
pub(super) struct Slot {
    name: String,
    role: &'static str,
    orders: Orders,
    process: Option<Process>,
    torment: Torment,
    lease: Duration,
    program: Program,
    errors: PathBuf,
    started: u64,
    log: Log,
    /// To end sessions by.
    bank: Bank,
    /// What it reaches the database by, if that can be disturbed.
    proxy: Option<Proxy>,
    /// What shifts clocks, and by whose chance.
    faketime: Option<(PathBuf, Chance)>,
    /// Whether the clock of its first life is off in any case.
    begins_ahead: bool,
}

impl Slot {
    /// One that does not run yet.
    pub(super) fn new(
        stage: &Stage,
        number: u64,
        role: &'static str,
        orders: Orders,
    ) -> Result<Self> {
        Ok(Self {
            name: format!("{}{number}", role.get(..1).unwrap_or_default()),
            role,
            lease: orders.settings.lease,
            log: Log::open(&orders.log, "nemesis")?,
            orders,
            process: None,
            torment: Torment::default(),
            program: stage.program.clone(),
            errors: stage.place.errors(),
            started: 0,
            bank: stage.place.bank.clone(),
            proxy: None,
            faketime: None,
            begins_ahead: false,
        })
    }

    /// The same behind a proxy of its own.
    pub(super) async fn behind_proxy(mut self) -> Result<Self> {
        let proxy = Proxy::start(authority(&self.orders.url)?, None).await?;
        self.orders.url = proxy.in_front_of(&self.orders.url)?;
        Ok(Self { proxy: Some(proxy), ..self })
    }

    /// The clocks of one life in three are an hour off, and that of the first one if it is said.
    pub(super) fn with_clocks(self, library: PathBuf, chance: Chance, begins_ahead: bool) -> Self {
        Self { faketime: Some((library, chance)), begins_ahead, ..self }
    }

    /// Its first life, or the next.
    pub(super) fn live(&mut self) -> Result {
        self.started += 1;
        self.orders.life = format!("{}.{}", self.name, self.started);
        if let Some(writing) = &mut self.orders.writing {
            // Another life, other transactions.
            writing.first = writing.first.wrapping_add(7919);
        }
        let is_first = self.begins_ahead && self.started == 1;
        let hours = self.faketime.as_mut().map_or(0, |(_, chance)| match chance.below(6) {
            _ if is_first => 1,
            0 => 1,
            1 => -1,
            _ => 0,
        });
        self.orders.ahead = hours;
        let mut program = self.program.clone();
        if let Some((library, _)) = self.faketime.as_ref().filter(|_| hours != 0) {
            program = program.ahead(hours, library);
            self.torment.add(Kind::Clock);
        }
        self.process = Some(program.start(self.role, &self.orders, &self.errors)?);
        Ok(())
    }

    /// First what it was dealt, then one thing after another by chance, until it is over; then
    /// everything is well again.
    pub(super) async fn torment(
        mut self,
        mut chance: Chance,
        dealt: Vec<Kind>,
        over: Arc<AtomicBool>,
    ) -> Result<Self> {
        let give_up = now() + PATIENCE;
        let mut dealt = VecDeque::from(dealt);
        loop {
            tokio::time::sleep(chance.around(self.respite())).await;
            let next = dealt.pop_front();
            if next.is_none() && over.load(Ordering::Relaxed) {
                return Ok(self);
            }
            let kind = next.unwrap_or_else(|| self.draw(&mut chance));
            let before = self.torment.count(kind);
            self.suffer(kind, &mut chance).await?;
            // What came to nothing, because the server was away, is tried again.
            if next.is_some() && self.torment.count(kind) == before && now() < give_up {
                dealt.push_back(kind);
            }
        }
    }

    /// A writer that is held up with an account's lock in its hands holds up all others: it has more
    /// time between two faults, or nothing would be written.
    fn respite(&self) -> Duration {
        if self.is_relay() { self.lease / 2 } else { self.lease * 2 }
    }

    fn draw(&self, chance: &mut Chance) -> Kind {
        let network = if self.proxy.is_some() { &Kind::NETWORK[..] } else { &[] };
        let all: Vec<Kind> = Kind::PROCESS.iter().chain(network).copied().collect();
        let at = usize::try_from(chance.below(all.len() as u64)).unwrap_or(0);
        all.get(at).copied().unwrap_or(Kind::Kill)
    }

    async fn suffer(&mut self, kind: Kind, chance: &mut Chance) -> Result {
        let process = self.running()?;
        let (life, usage) = (process.life().to_owned(), process.usage()?);
        self.torment.usage = self.torment.usage.max(usage);
        self.log.note_of(&life, &Entry::Fault { kind: kind.key() })?;
        match kind {
            Kind::Kill => {
                self.kill().await?;
                tokio::time::sleep(Duration::from_millis(chance.below(1000))).await;
                return self.live();
            }
            Kind::Pause => return self.pause(chance.around(self.lease * 3 / 2)).await,
            Kind::Restart => return self.stop().await,
            _ => {}
        }
        self.torment.faults.paused(&life);
        if self.disturb(kind, chance).await? {
            self.torment.add(kind);
        }
        Ok(())
    }

    /// Kills it for the last time, which is no part of its torment. Returns what that was.
    pub(super) async fn end(mut self) -> Result<Torment> {
        let process = self.process.take().ok_or("no process")?;
        self.torment.usage = self.torment.usage.max(process.usage()?);
        self.torment.faults.killed(process.life());
        process.kill().await?;
        Ok(self.torment)
    }

    pub(super) fn is_relay(&self) -> bool {
        self.role == "relay"
    }

    pub(super) fn running(&self) -> Result<&Process> {
        self.process.as_ref().ok_or_else(|| format!("{} has no process", self.name).into())
    }

    pub(super) async fn kill(&mut self) -> Result {
        let process = self.process.take().ok_or("no process")?;
        self.torment.usage = self.torment.usage.max(process.usage()?);
        self.torment.kill(process).await
    }

    async fn pause(&mut self, length: Duration) -> Result {
        let mut torment = std::mem::take(&mut self.torment);
        let paused = torment.pause(self.running()?, length).await;
        self.torment = torment;
        paused
    }

    /// A writer ends at once when it is asked to: that is a kill.
    async fn stop(&mut self) -> Result {
        let process = self.process.take().ok_or("no process")?;
        if self.is_relay() {
            self.torment.add(Kind::Restart);
            process.stop().await?;
        } else {
            self.torment.kill(process).await?;
        }
        self.live()
    }

    /// Something with the network. Returns whether it came to anything.
    async fn disturb(&self, kind: Kind, chance: &mut Chance) -> Result<bool> {
        let Some(proxy) = &self.proxy else { return Ok(false) };
        // Longer than the lease, so that somebody else takes over meanwhile.
        let long = chance.around(self.lease * 3 / 2);
        match kind {
            Kind::Cut => proxy.end_all(Ending::Close),
            Kind::Reset => proxy.end_all(Ending::Reset),
            Kind::HalfOpen => proxy.end_all(Ending::HalfOpen(long)),
            Kind::CutAfter => return self.lay_trap(proxy, chance).await,
            Kind::Terminate => return self.terminate(proxy, chance).await,
            Kind::Silence => weather(proxy, Weather::Deaf(Way::Both), long).await,
            Kind::OneWay => weather(proxy, Weather::Deaf(one_way(chance)), long).await,
            Kind::Refusal => {
                proxy.end_all(Ending::Close);
                weather(proxy, Weather::Closed, long).await;
            }
            Kind::Delay => {
                let by = Duration::from_millis(1 + chance.below(50));
                weather(proxy, Weather::Late(by), chance.around(self.lease)).await;
            }
            Kind::Kill | Kind::Pause | Kind::Restart | Kind::Clock | Kind::Disk => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn lay_trap(&self, proxy: &Proxy, chance: &mut Chance) -> Result<bool> {
        let before = proxy.sprung();
        let most = 1 << (4 + chance.below(12));
        let bytes = usize::try_from(chance.below(most))?;
        let ending = if chance.below(2) == 0 { Ending::Close } else { Ending::Reset };
        proxy.lay(Trap { way: one_way(chance), bytes, ending });
        // Without a word there is nothing to cut; the trap stays where it is.
        for _ in 0..20 {
            tokio::time::sleep(self.lease / 10).await;
            if proxy.sprung() > before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn terminate(&self, proxy: &Proxy, chance: &mut Chance) -> Result<bool> {
        let ports = proxy.ports();
        let at = chance.below(ports.len().max(1) as u64);
        let Some(port) = ports.get(usize::try_from(at)?) else { return Ok(false) };
        // A server that is away has no sessions.
        Ok(self.bank.terminate(*port).await.unwrap_or(false))
    }
}

async fn weather(proxy: &Proxy, weather: Weather, length: Duration) {
    proxy.set(weather);
    tokio::time::sleep(length).await;
    proxy.set(Weather::Fair);
}

fn one_way(chance: &mut Chance) -> Way {
    if chance.below(2) == 0 { Way::There } else { Way::Back }
}
