//! The mode: how a relay claims and orders rows, and whether its tables agree.

use crate::error::{Error, ErrorKind, Result};
use crate::id::Epoch;
use crate::relay::Settings;
use crate::store::{ClaimMode, DeliveryMode, OutboxConfig, Store};

/// The tables as this relay means to work on them; entering as an owner refuses what they are not
/// set to. The first relay ever sets them.
pub(super) async fn agree(store: &dyn Store, settings: &Settings) -> Result<OutboxConfig> {
    let layout = store.config().await?;
    let wanted = DeliveryMode { claim: settings.claim, order: settings.order };
    if [wanted, layout.mode].iter().any(|mode| mode.claim == ClaimMode::None) {
        return Err(nobody_delivers());
    }
    let is_unset = layout.mode == DeliveryMode::default() && wanted != layout.mode;
    if is_unset && is_untouched(store).await? {
        match store.configure(&wanted).await {
            // Another relay came first; entering says whether it means the same.
            Err(error) if error.kind() == ErrorKind::Configuration => {}
            configured => configured?,
        }
    }
    Ok(OutboxConfig { mode: wanted, ..layout })
}

/// Whether no relay has ever held a shard here.
async fn is_untouched(store: &dyn Store) -> Result<bool> {
    let shards = store.breakdown().await?.shards;
    Ok(shards.iter().all(|shard| shard.epoch == Epoch(0)))
}

fn nobody_delivers() -> Error {
    Error::new(
        ErrorKind::Configuration,
        "with claim = none nobody delivers from the tables, and a relay does not start: write with \
         an `Outbox` alone, read the tables or the database's log with a program of your own, and \
         purge with `Maintenance`; to deliver with relays, set claim to shards or rows (here, and by \
         `store.configure`)",
    )
}
