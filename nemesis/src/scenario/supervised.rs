//! A supervised process: restarted after each fault, through all its incarnations.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now};
use super::fault::{FaultKind, InjectedFaults};
use crate::Result;
use crate::bank::Bank;
use crate::config::ProcessConfig;
use crate::log::{Entry, Log};
use crate::process::{Process, Program};
use crate::proxy::{ArmedCut, Direction, Disconnect, Network, Proxy, authority};
use crate::rng::SeededRng;
use crate::role::Role;

/// A supervised process.
#[derive(Debug)]
pub(super) struct SupervisedProcess {
    name: String,
    role: Role,
    config: ProcessConfig,
    process: Option<Process>,
    injected: InjectedFaults,
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
    faketime: Option<(PathBuf, SeededRng)>,
    /// Whether the clock of its first life is off in any case.
    begins_ahead: bool,
}

impl SupervisedProcess {
    /// Creates a process that does not run yet.
    pub(super) fn new(
        env: &Environment,
        number: u64,
        role: Role,
        config: ProcessConfig,
    ) -> Result<Self> {
        Ok(Self {
            name: format!("{}{number}", if role == Role::Relay { "r" } else { "w" }),
            role,
            lease: config.settings.lease,
            log: Log::open(&config.log, "nemesis")?,
            config,
            process: None,
            injected: InjectedFaults::default(),
            program: env.options.program.clone(),
            errors: env.deployment.errors(),
            started: 0,
            bank: env.deployment.bank.clone(),
            proxy: None,
            faketime: None,
            begins_ahead: false,
        })
    }

    /// Puts the process behind a proxy of its own.
    pub(super) async fn behind_proxy(mut self) -> Result<Self> {
        let proxy = Proxy::start(authority(&self.config.url)?, None).await?;
        self.config.url = proxy.in_front_of(&self.config.url)?;
        Ok(Self { proxy: Some(proxy), ..self })
    }

    /// Shifts the clock of one incarnation in three by an hour, and optionally that of the first.
    pub(super) fn with_clocks(self, library: PathBuf, rng: SeededRng, begins_ahead: bool) -> Self {
        Self { faketime: Some((library, rng)), begins_ahead, ..self }
    }

    /// Starts the next incarnation.
    pub(super) fn live(&mut self) -> Result {
        self.started += 1;
        self.config.incarnation = format!("{}.{}", self.name, self.started);
        if let Some(writes) = &mut self.config.writes {
            // Another incarnation changes other accounts.
            writes.first = writes.first.wrapping_add(7919);
        }
        let is_first = self.begins_ahead && self.started == 1;
        let hours = self.faketime.as_mut().map_or(0, |(_, rng)| match rng.below(6) {
            _ if is_first => 1,
            0 => 1,
            1 => -1,
            _ => 0,
        });
        self.config.ahead = hours;
        let mut program = self.program.clone();
        if let Some((library, _)) = self.faketime.as_ref().filter(|_| hours != 0) {
            program = program.ahead(hours, library);
            self.injected.add(FaultKind::Clock);
        }
        self.process = Some(program.start(self.role, &self.config, &self.errors)?);
        Ok(())
    }

    /// Injects the assigned faults, then random ones until the run is over.
    pub(super) async fn inject_faults(
        mut self,
        mut rng: SeededRng,
        assigned: Vec<FaultKind>,
        over: Arc<AtomicBool>,
    ) -> Result<Self> {
        let give_up = now() + PROGRESS_TIMEOUT;
        let mut assigned = VecDeque::from(assigned);
        loop {
            tokio::time::sleep(rng.jittered(self.pause_between_faults())).await;
            let next = assigned.pop_front();
            if next.is_none() && over.load(Ordering::Relaxed) {
                return Ok(self);
            }
            let kind = next.unwrap_or_else(|| self.draw(&mut rng));
            let before = self.injected.count(kind);
            self.inject(kind, &mut rng).await?;
            // A fault without effect, because the server was down, is injected again.
            if next.is_some() && self.injected.count(kind) == before && now() < give_up {
                assigned.push_back(kind);
            }
        }
    }

    /// A writer that is held up with an account's lock in its hands holds up all others: it has more
    /// time between two faults, or nothing would be written.
    fn pause_between_faults(&self) -> Duration {
        if self.is_relay() { self.lease / 2 } else { self.lease * 2 }
    }

    fn draw(&self, rng: &mut SeededRng) -> FaultKind {
        let network = if self.proxy.is_some() { &FaultKind::NETWORK[..] } else { &[] };
        let all: Vec<FaultKind> = FaultKind::PROCESS.iter().chain(network).copied().collect();
        let at = usize::try_from(rng.below(all.len() as u64)).unwrap_or(0);
        all.get(at).copied().unwrap_or(FaultKind::Kill)
    }

    async fn inject(&mut self, kind: FaultKind, rng: &mut SeededRng) -> Result {
        let process = self.running()?;
        let (incarnation, usage) = (process.incarnation().to_owned(), process.usage()?);
        self.injected.usage = self.injected.usage.max(usage);
        self.log.append_for(&incarnation, &Entry::Fault { kind: kind.key() })?;
        match kind {
            FaultKind::Kill => {
                self.kill().await?;
                tokio::time::sleep(Duration::from_millis(rng.below(1000))).await;
                return self.live();
            }
            FaultKind::Pause => return self.pause(rng.jittered(self.lease * 3 / 2)).await,
            FaultKind::Restart => return self.stop().await,
            _ => {}
        }
        self.injected.faults.paused(&incarnation);
        if self.disturb(kind, rng).await? {
            self.injected.add(kind);
        }
        Ok(())
    }

    /// Ends the process, and returns the injected faults.
    pub(super) async fn end(mut self) -> Result<InjectedFaults> {
        let process = self.process.take().ok_or("no process")?;
        self.injected.usage = self.injected.usage.max(process.usage()?);
        self.injected.faults.killed(process.incarnation());
        process.kill().await?;
        Ok(self.injected)
    }

    pub(super) fn is_relay(&self) -> bool {
        self.role == Role::Relay
    }

    pub(super) fn running(&self) -> Result<&Process> {
        self.process.as_ref().ok_or_else(|| format!("{} has no process", self.name).into())
    }

    pub(super) async fn kill(&mut self) -> Result {
        let process = self.process.take().ok_or("no process")?;
        self.injected.usage = self.injected.usage.max(process.usage()?);
        self.injected.kill(process).await
    }

    async fn pause(&mut self, length: Duration) -> Result {
        let mut injected = std::mem::take(&mut self.injected);
        let paused = injected.pause(self.running()?, length).await;
        self.injected = injected;
        paused
    }

    /// A writer ends at once when it is asked to: that is a kill.
    async fn stop(&mut self) -> Result {
        let process = self.process.take().ok_or("no process")?;
        if self.is_relay() {
            self.injected.add(FaultKind::Restart);
            process.stop().await?;
        } else {
            self.injected.kill(process).await?;
        }
        self.live()
    }

    /// Injects a network fault. Returns whether it had an effect.
    async fn disturb(&self, kind: FaultKind, rng: &mut SeededRng) -> Result<bool> {
        let Some(proxy) = &self.proxy else { return Ok(false) };
        // Longer than the lease, so that somebody else takes over meanwhile.
        let long = rng.jittered(self.lease * 3 / 2);
        match kind {
            FaultKind::Cut => proxy.end_all(Disconnect::Close),
            FaultKind::Reset => proxy.end_all(Disconnect::Reset),
            FaultKind::HalfOpen => proxy.end_all(Disconnect::HalfOpen(long)),
            FaultKind::CutAfter => return self.arm_cut(proxy, rng).await,
            FaultKind::Terminate => return self.terminate(proxy, rng).await,
            FaultKind::Silence => network(proxy, Network::Silent(Direction::Both), long).await,
            FaultKind::OneWay => network(proxy, Network::Silent(one_way(rng)), long).await,
            FaultKind::Refusal => {
                proxy.end_all(Disconnect::Close);
                network(proxy, Network::Refusing, long).await;
            }
            FaultKind::Delay => {
                let by = Duration::from_millis(1 + rng.below(50));
                network(proxy, Network::Delayed(by), rng.jittered(self.lease)).await;
            }
            FaultKind::Kill
            | FaultKind::Pause
            | FaultKind::Restart
            | FaultKind::Clock
            | FaultKind::Disk => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn arm_cut(&self, proxy: &Proxy, rng: &mut SeededRng) -> Result<bool> {
        let before = proxy.fired_cuts();
        let most = 1 << (4 + rng.below(12));
        let bytes = usize::try_from(rng.below(most))?;
        let disconnect = if rng.below(2) == 0 { Disconnect::Close } else { Disconnect::Reset };
        proxy.arm(ArmedCut { direction: one_way(rng), bytes, disconnect });
        // Without a word there is nothing to cut; the trap stays where it is.
        for _ in 0..20 {
            tokio::time::sleep(self.lease / 10).await;
            if proxy.fired_cuts() > before {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn terminate(&self, proxy: &Proxy, rng: &mut SeededRng) -> Result<bool> {
        let ports = proxy.ports();
        let at = rng.below(ports.len().max(1) as u64);
        let Some(port) = ports.get(usize::try_from(at)?) else { return Ok(false) };
        // A server that is away has no sessions.
        Ok(self.bank.terminate(*port).await.unwrap_or(false))
    }
}

async fn network(proxy: &Proxy, network: Network, length: Duration) {
    proxy.set(network);
    tokio::time::sleep(length).await;
    proxy.set(Network::Normal);
}

fn one_way(rng: &mut SeededRng) -> Direction {
    if rng.below(2) == 0 { Direction::ToServer } else { Direction::ToClient }
}
