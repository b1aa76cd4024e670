//! Wakes across processes: hearing of commits elsewhere, and telling others of ours.

use std::{sync::Arc, time::Duration};

use tracing::{debug, warn};

use crate::error::Result;
use crate::id::jitter;
use crate::store::Store;
use crate::wake::Wake;

/// However many commits there are, others are told no more often than this.
const PAUSE: Duration = Duration::from_millis(1);

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
    let Some(mut bell) = store.hear().await? else { return Ok(()) };
    // Something may have happened before it was there to hear it.
    wake.hear();
    *pause = Duration::from_millis(100);
    loop {
        bell.rung().await?;
        wake.hear();
    }
}

/// Tells others of commits here, for as long as it runs.
pub(super) async fn ring(store: Arc<dyn Store>, wake: Wake) {
    loop {
        wake.wait_to_ring().await;
        if let Err(error) = store.ring().await {
            debug!(error = %error, cause = error.source_text(), "others are not told, they poll");
        }
        tokio::time::sleep(PAUSE).await;
    }
}
