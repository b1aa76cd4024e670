//! Forces a verdict that comes too late.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, wait_until};
use super::fault::InjectedFaults;
use crate::Result;
use crate::config::ListenerBehavior;
use crate::log::{Entry, Log, Tail};

/// How long its listener takes, in microseconds, so that some events are always in delivery.
const SLOW: u64 = 200_000;

/// Not every pause works: a process that is stopped while it writes to a file keeps others from
/// taking over.
const ROUNDS: usize = 10;

/// Pauses a relay during its deliveries until another one has taken over, and resumes it, until one
/// of its verdicts was fenced. Does nothing if a verdict was fenced before.
///
/// Needs running writers, and no other relay.
pub(super) async fn inject(env: &Environment, settings: &RelaySettings) -> Result<InjectedFaults> {
    let (mut injected, mut tail) = (InjectedFaults::default(), env.tail()?);
    for round in 1..=ROUNDS {
        tail.poll()?;
        if tail.fenced > 0 {
            break;
        }
        let late = LateVerdict { env, settings, round };
        late.run(&mut tail, &mut injected).await?;
    }
    Ok(injected)
}

struct LateVerdict<'a> {
    env: &'a Environment,
    settings: &'a RelaySettings,
    round: usize,
}

impl LateVerdict<'_> {
    async fn run(&self, tail: &mut Tail, injected: &mut InjectedFaults) -> Result {
        let Self { env, settings, round } = *self;
        let mut config = env.relay_config(&format!("late.{round}"), settings);
        config.listener = ListenerBehavior::Slow(SLOW);
        let late = env.relay(&config)?;
        poll_until(tail, PROGRESS_TIMEOUT, |tail| {
            tail.incarnations.contains_key(late.incarnation())
        })
        .await?;
        Log::open(&config.log, "nemesis")?
            .append_for(late.incarnation(), &Entry::Fault { kind: "stops" })?;
        injected.faults.paused(late.incarnation());
        late.pause().await?;
        let successor = env.relay(&env.relay_config(&format!("successor.{round}"), settings))?;
        // Times out where nobody can take over before it is resumed.
        poll_until(tail, settings.lease * 20, |tail| {
            tail.acquired.contains_key(successor.incarnation())
        })
        .await
        .ok();
        late.resume().await?;
        poll_until(tail, settings.lease * 20, |tail| tail.fenced > 0).await.ok();
        for process in [late, successor] {
            injected.faults.killed(process.incarnation());
            process.kill().await?;
        }
        Ok(())
    }
}

async fn poll_until(
    tail: &mut Tail,
    timeout: Duration,
    mut is_seen: impl FnMut(&Tail) -> bool,
) -> Result {
    wait_until(timeout, async || {
        tail.poll()?;
        Ok(is_seen(tail))
    })
    .await
}
