//! Wakes across processes: hearing of commits elsewhere, and telling others of ours.

use std::{sync::Arc, time::Duration};

use tokio::time::sleep_until;
use tracing::{debug, warn};

use crate::clock::instant;
use crate::error::Result;
use crate::id::jitter;
use crate::relay::SECOND;
use crate::store::Store;
use crate::wake::Wake;

/// However many commits there are, others are told no more often than this: who is asked to tell again
/// as soon as it has told waits for more to tell.
const PAUSE: Duration = Duration::from_millis(1);
const AT_ONCE: Duration = Duration::from_micros(300);

/// After so long the first look for what was written unseen; each pause is twice the one before.
const FIRST_LOOK: Duration = Duration::from_millis(2);
const LAST_LOOK: Duration = Duration::from_millis(1024);

/// How long to wait before a connection that was refused is tried again.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Wakes the relay when something was committed elsewhere, for as long as it runs. Wakes are hints:
/// while the connection is down, polling finds what it would have told.
pub(super) async fn hear(store: Arc<dyn Store>, wake: Wake) {
    let mut pause = Duration::from_millis(100);
    loop {
        match hear_once(&*store, &wake, &mut pause).await {
            Ok(()) => return,
            Err(error) => {
                let cause = error.source_text();
                warn!(error = %error, cause, "does not hear of commits elsewhere, polling");
            }
        }
        tokio::time::sleep(pause.mul_f64(jitter())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Ends well only where the database cannot tell.
async fn hear_once(store: &dyn Store, wake: &Wake, pause: &mut Duration) -> Result<()> {
    let Some(mut notifications) = store.subscribe().await? else { return Ok(()) };
    // Something may have happened before it was there to hear it.
    wake.hear();
    *pause = Duration::from_millis(100);
    loop {
        notifications.recv().await?;
        wake.hear();
    }
}

/// Wakes again and again once something was written into a transaction whose end nobody sees: soon
/// at first, then less and less often, for as long as it runs.
pub(super) async fn look_again(wake: Wake) {
    loop {
        wake.wait_for_unseen().await;
        let mut pause = FIRST_LOOK;
        let mut next = instant() + pause;
        while pause <= LAST_LOOK {
            tokio::select! {
                () = wake.wait_for_unseen() => {
                    pause = FIRST_LOOK;
                    // However many come, none of them puts the next look off.
                    next = next.min(instant() + pause);
                }
                () = sleep_until(next) => {
                    wake.now();
                    pause *= 2;
                    next = instant() + pause;
                }
            }
        }
    }
}

/// Tells others of commits here, for as long as it runs.
pub(super) async fn ring(store: Arc<dyn Store>, wake: Wake) {
    tell_others(wake, || ring_once(Arc::clone(&store))).await;
}

async fn ring_once(store: Arc<dyn Store>) {
    if let Err(error) = store.notify().await {
        debug!(error = %error, cause = error.source_text(), "others are not told, they poll");
    }
}

/// Tells others once more, of what was committed or given back last.
pub(super) async fn ring_last(store: &dyn Store) {
    match tokio::time::timeout(SECOND, store.notify()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            let cause = error.source_text();
            debug!(error = %error, cause, "could not notify other relays; they will find it by polling");
        }
        Err(_) => debug!("could not notify other relays in time; they will find it by polling"),
    }
}

async fn tell_others<F: Future<Output = ()>>(wake: Wake, tell: impl Fn() -> F) {
    let mut told = None;
    loop {
        wake.wait_to_ring().await;
        if told.is_some_and(|told| instant() - told < AT_ONCE) {
            tokio::time::sleep(PAUSE).await;
        }
        tell().await;
        told = Some(instant());
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// When the looks came, in milliseconds.
    async fn looks(wake: &Wake, count: usize) -> Vec<u128> {
        let start = instant();
        let mut looks = Vec::new();
        for _ in 0..count {
            wake.wait().await;
            looks.push((instant() - start).as_millis());
        }
        looks
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_unseen_is_looked_for_less_and_less_often() {
        let wake = Wake::default();
        let looking = tokio::spawn(look_again(wake.clone()));
        wake.soon();

        assert_eq!(looks(&wake, 10).await, [2, 6, 14, 30, 62, 126, 254, 510, 1022, 2046]);
        assert!(tokio::time::timeout(LONGEST_PAUSE, wake.wait()).await.is_err(), "polls go on");
        looking.abort();
    }

    const WHILE: Duration = Duration::from_millis(100);

    #[tokio::test(start_paused = true)]
    async fn a_commit_now_and_then_is_told_at_once() {
        let (start, wake, told) = (instant(), Wake::default(), Mutex::new(Vec::new()));
        let telling = tell_others(wake.clone(), || {
            told.lock().unwrap().push((instant() - start).as_millis());
            ready(())
        });
        let committing = async {
            for _ in 0..3 {
                wake.now();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        };

        let both = async { tokio::join!(telling, committing) };
        assert!(tokio::time::timeout(WHILE, both).await.is_err());

        assert_eq!(*told.lock().unwrap(), [0, 3, 6]);
    }

    /// There is always somebody who has committed while others were told.
    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_commits_is_told_of_together() {
        let (wake, told) = (Wake::default(), AtomicU32::new(0));
        wake.now();

        let telling = tell_others(wake.clone(), || {
            told.fetch_add(1, Ordering::Relaxed);
            wake.now();
            ready(())
        });
        assert!(tokio::time::timeout(WHILE, telling).await.is_err());

        assert!((40..=101).contains(&told.load(Ordering::Relaxed)), "{told:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn no_crowd_of_writers_puts_a_look_off() {
        let wake = Wake::default();
        let looking = tokio::spawn(look_again(wake.clone()));
        let writer = wake.clone();
        let writing = tokio::spawn(async move {
            loop {
                writer.soon();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });

        let looks = looks(&wake, 50).await;

        assert!(looks.windows(2).all(|two| two[1] - two[0] <= 4), "{looks:?}");
        writing.abort();
        looking.abort();
    }
}
