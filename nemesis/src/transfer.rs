//! What a varied load emits: an event that knows what it should look like when it arrives.

use std::time::Duration;

use pillarbox::{Envelope, Key, PayloadHash, Result};
use serde::{Deserialize, Serialize};

/// The aggregate of all events of the bank.
pub const AGGREGATE: &str = "account";

/// An event in the order of its account.
pub const TRANSFER: &str = "nemesis.transfer";

/// One that is ordered by nothing, so that it may go hot.
pub const NOTICE: &str = "nemesis.notice";

/// Carries the checksum, apart from what it is the sum of.
const SUM: &str = "nemesis-sum";

/// A change of an account, or a notice of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transfer {
    /// Which account.
    pub account: i64,
    /// The account's own count of such events; less than one for what must never arrive.
    pub n: i64,
    /// What it adds to the balance.
    pub amount: i64,
    /// Whose account it is.
    pub tenant: i64,
    /// Not to be delivered before so many milliseconds have passed.
    pub delay: u64,
    /// Makes it as long as it is.
    pub filler: String,
}

impl Transfer {
    /// As it is emitted.
    ///
    /// # Errors
    /// When it is too long.
    pub fn envelope(&self, is_ordered: bool) -> Result<Envelope> {
        let name = if is_ordered { TRANSFER } else { NOTICE };
        let key = if is_ordered { Key::Aggregate } else { Key::Free };
        let envelope = Envelope::json(name, self)?
            .aggregate(AGGREGATE, self.account.to_string())?
            .key(key)?
            .tenant(self.tenant.to_string())?
            .header(SUM, self.sum())?;
        Ok(if self.delay == 0 {
            envelope
        } else {
            envelope.deliver_after(Duration::from_millis(self.delay))
        })
    }

    /// What arrived, if it is whole: payload, tenant, aggregate and header agree.
    pub fn read(envelope: &Envelope) -> Option<Self> {
        let it: Self = serde_json::from_str(envelope.payload().as_json()?).ok()?;
        let is_whole = envelope.header_map().get(SUM) == Some(&*it.sum())
            && envelope.tenant_id() == Some(&*it.tenant.to_string())
            && envelope.aggregate_id() == Some(&*it.account.to_string());
        is_whole.then_some(it)
    }

    fn sum(&self) -> String {
        let Self { account, n, amount, tenant, delay, filler } = self;
        let text = format!("{account} {n} {amount} {tenant} {delay} {filler}");
        PayloadHash::of(text).as_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer() -> Transfer {
        let filler = "abc".to_owned();
        Transfer { account: 3, n: 7, amount: -5, tenant: 1, delay: 0, filler }
    }

    #[test]
    fn what_was_emitted_is_whole() {
        let transfer = transfer();

        for is_ordered in [true, false] {
            assert_eq!(
                Transfer::read(&transfer.envelope(is_ordered).unwrap()),
                Some(transfer.clone())
            );
        }
    }

    #[test]
    fn a_changed_payload_tenant_header_or_account_is_damage() {
        let envelope = transfer().envelope(true).unwrap();
        let cut = Transfer { filler: "ab".to_owned(), ..transfer() };
        let payload = Envelope::json(TRANSFER, &cut).unwrap();
        let payload = payload.aggregate(AGGREGATE, "3").unwrap().tenant("1").unwrap();

        let damaged = [
            payload.headers(envelope.header_map().clone()),
            envelope.clone().tenant("2").unwrap(),
            envelope.clone().header(SUM, "0").unwrap(),
            envelope.aggregate(AGGREGATE, "4").unwrap(),
        ];

        for envelope in damaged {
            assert_eq!(Transfer::read(&envelope), None, "{envelope:?}");
        }
    }
}
