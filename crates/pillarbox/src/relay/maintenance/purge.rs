//! Purging: what is past its retention goes, in small batches.

use std::sync::Arc;

use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::relay::Settings;
use crate::relay::maintenance::{Lead, patiently};
use crate::scheduler::JobStatus;
use crate::store::{ClaimMode, Purge, Store};
use crate::telemetry::{Observers, RelayEvent};

/// Batches of one kind in one turn; then the other jobs are looked at.
const MOST_BATCHES: u32 = 1000;

/// Deletes what is past its retention.
#[derive(Debug)]
pub(super) struct Purger {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) observers: Observers,
    pub(super) lead: Lead,
}

impl Purger {
    /// Marks how far `seq` has come, then one round over all kinds; the error of one keeps no other
    /// from being purged.
    pub(super) async fn turn(&self) -> Result<JobStatus> {
        if !self.lead.is_ours() {
            return Ok(JobStatus::Idle);
        }
        let claim = patiently(self.store.config()).await?.mode.claim;
        let (mut turn, mut failed) =
            (JobStatus::Idle, patiently(self.store.mark_seq()).await.err());
        for purge in purges(&self.settings, claim)? {
            match self.purge(&purge).await {
                Ok(JobStatus::Idle) => {}
                Ok(JobStatus::More) => turn = JobStatus::More,
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(turn), Err)
    }

    /// Batch after batch, for as long as it is ours to do.
    async fn purge(&self, purge: &Purge) -> Result<JobStatus> {
        let (mut rows, mut turn) = (0, Ok(JobStatus::More));
        for _ in 0..MOST_BATCHES {
            if !self.lead.is_ours() {
                turn = Ok(JobStatus::Idle);
                break;
            }
            let purging = async {
                crash_point!("purge.before"?);
                let gone = self.store.purge(purge).await;
                crash_point!("purge.after"?);
                gone
            };
            match patiently(purging).await {
                Ok(gone) if gone < u64::from(purge.limit) => {
                    rows += gone;
                    turn = Ok(JobStatus::Idle);
                    break;
                }
                Ok(gone) => rows += gone,
                Err(error) => {
                    turn = Err(error);
                    break;
                }
            }
        }
        if rows > 0 {
            self.observers.on_event(&RelayEvent::Purged { kind: purge.kind.as_str(), rows });
        }
        turn
    }
}

/// What goes after how long. Where nobody delivers from the tables, nothing is ever done or dead:
/// events go by their age alone.
fn purges(settings: &Settings, claim: ClaimMode) -> Result<Vec<Purge>> {
    let done = settings.retention_done;
    let events = match claim {
        ClaimMode::None if done.is_zero() => return Err(would_delete_unread()),
        ClaimMode::None => vec![Purge::any(done)],
        ClaimMode::Shards | ClaimMode::Rows => {
            vec![Purge::done(done), Purge::dead(settings.retention_dead)]
        }
    };
    let notes = [Purge::audit(settings.retention_audit), Purge::inbox(settings.retention_inbox)];
    let limit = settings.purge_batch.get();
    Ok(events.into_iter().chain(notes).map(|purge| purge.limit(limit)).collect())
}

fn would_delete_unread() -> Error {
    Error::new(
        ErrorKind::Configuration,
        "retention_done is zero, and with claim = none that deletes events before anybody has \
         read them: give it the time that your reader needs at most",
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::PurgeKind;

    fn kinds(claim: ClaimMode) -> Vec<PurgeKind> {
        let purges = purges(&Settings::default(), claim).unwrap();
        purges.iter().map(|purge| purge.kind).collect()
    }

    #[test]
    fn each_kind_has_its_own_retention() {
        let settings = Settings {
            retention_done: Duration::from_secs(1),
            retention_dead: Duration::from_secs(2),
            retention_audit: Duration::from_secs(3),
            retention_inbox: Duration::from_secs(4),
            ..Settings::default()
        };

        let purges = purges(&settings, ClaimMode::Shards).unwrap();

        let ages: Vec<_> = purges.iter().map(|purge| purge.older_than.as_secs()).collect();
        assert_eq!(ages, [1, 2, 3, 4]);
        assert!(purges.iter().all(|purge| purge.limit == 500));
    }

    #[test]
    fn where_nobody_delivers_age_alone_counts() {
        use PurgeKind::{Any, Audit, Dead, Done, Inbox};

        assert_eq!(kinds(ClaimMode::Rows), [Done, Dead, Audit, Inbox]);
        assert_eq!(kinds(ClaimMode::None), [Any, Audit, Inbox]);
    }

    #[test]
    fn where_nobody_delivers_nothing_goes_at_once() {
        let settings = Settings { retention_done: Duration::ZERO, ..Settings::default() };

        let error = purges(&settings, ClaimMode::None).unwrap_err();

        assert_eq!(error.kind(), ErrorKind::Configuration);
    }
}
