//! Relay settings with short and with long leases.

use std::num::NonZeroU32;
use std::time::Duration;

use pillarbox::RelaySettings;

/// How many events a killed relay may cause to come twice.
pub const MAX_UNSETTLED: u32 = 64;

/// Short leases, so that many kills and pauses fit into a run.
pub fn short_lease() -> RelaySettings {
    RelaySettings {
        lease: Duration::from_millis(400),
        delivery_timeout: Duration::from_millis(250),
        margin: Duration::from_millis(50),
        poll: Duration::from_millis(20),
        sweep: Duration::from_millis(500),
        max_unsettled: NonZeroU32::new(MAX_UNSETTLED).expect("not zero"),
        retention_done: Duration::ZERO,
        ..RelaySettings::default()
    }
}

/// The defaults, with leases that even a machine under load renews in time, and rows deleted.
pub fn long_lease() -> RelaySettings {
    RelaySettings {
        lease: Duration::from_secs(60),
        poll: Duration::from_millis(50),
        retention_done: Duration::ZERO,
        ..RelaySettings::default()
    }
}
