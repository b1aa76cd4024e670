//! A relay in a hurry: short leases, so that a hundred kills fit into a test.

use std::num::NonZeroU32;
use std::time::Duration;

use pillarbox::RelaySettings;

/// How many events a killed relay may cause to come twice.
pub const MAX_UNSETTLED: u32 = 64;

/// The relay's numbers under test.
pub fn hurried() -> RelaySettings {
    RelaySettings {
        lease: Duration::from_millis(400),
        delivery_timeout: Duration::from_millis(250),
        margin: Duration::from_millis(50),
        poll: Duration::from_millis(20),
        sweep: Duration::from_millis(500),
        max_unsettled: NonZeroU32::new(MAX_UNSETTLED).expect("not zero"),
        ..RelaySettings::default()
    }
}
