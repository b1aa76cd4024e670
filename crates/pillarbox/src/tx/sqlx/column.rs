//! Which columns an insert names: those that its events need, since the table itself knows the rest.
//!
//! Most events need five or six of the seventeen, and a database takes as long for a null as for a
//! value. An application has few kinds of events, so that there are few texts to keep prepared.

use super::{partition_key, status};
use crate::envelope::{Delivery, Envelope, Payload};
use crate::event::AggregateType;
use crate::store::Status;
use crate::table::Tables;
use crate::tx::{Insert, LocalLease};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    EventId,
    EventType,
    EventVersion,
    AggregateType,
    AggregateId,
    PartitionKey,
    TenantId,
    Payload,
    PayloadBytes,
    ContentType,
    Headers,
    OccurredAt,
    AvailableAt,
    LockedBy,
    LockedUntil,
    LockToken,
    Status,
    /// This one and the next are generated columns, except on PostgreSQL.
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the table computes it"))]
    OrderingKey,
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the table computes it"))]
    Shard,
}

impl Column {
    const ALL: [Self; 17] = [
        Self::EventId,
        Self::EventType,
        Self::EventVersion,
        Self::AggregateType,
        Self::AggregateId,
        Self::PartitionKey,
        Self::TenantId,
        Self::Payload,
        Self::PayloadBytes,
        Self::ContentType,
        Self::Headers,
        Self::OccurredAt,
        Self::AvailableAt,
        Self::LockedBy,
        Self::LockedUntil,
        Self::LockToken,
        Self::Status,
    ];

    /// Those that at least one of the events needs.
    pub(super) fn needed_by(insert: &Insert<'_>) -> Vec<Self> {
        let is_hot = insert.hot.is_some();
        let is_needed =
            |column: &Self| insert.envelopes.iter().any(|event| column.is_needed_by(event, is_hot));
        Self::ALL.into_iter().filter(is_needed).collect()
    }

    /// The same with what follows from them, where the table does not know it by itself.
    #[cfg(feature = "postgres")]
    pub(super) fn complete(insert: &Insert<'_>) -> Vec<Self> {
        let mut columns = Self::needed_by(insert);
        if insert.envelopes.iter().any(Envelope::is_ordered) {
            columns.push(Self::OrderingKey);
        }
        columns.push(Self::Shard);
        columns
    }

    /// The start of the statement, up to the values.
    pub(super) fn insert(tables: &Tables, columns: &[Self]) -> String {
        let names: Vec<_> = columns.iter().map(|column| column.name()).collect();
        format!("insert into {}outbox_event ({}) ", tables.prefix().as_str(), names.join(", "))
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::EventId => "event_id",
            Self::EventType => "event_type",
            Self::EventVersion => "event_version",
            Self::AggregateType => "aggregate_type",
            Self::AggregateId => "aggregate_id",
            Self::PartitionKey => "partition_key",
            Self::TenantId => "tenant_id",
            Self::Payload => "payload",
            Self::PayloadBytes => "payload_bytes",
            Self::ContentType => "content_type",
            Self::Headers => "headers",
            Self::OccurredAt => "occurred_at",
            Self::AvailableAt => "available_at",
            Self::LockedBy => "locked_by",
            Self::LockedUntil => "locked_until",
            Self::LockToken => "lock_token",
            Self::Status => "status",
            Self::OrderingKey => "ordering_key",
            Self::Shard => "shard",
        }
    }

    /// Whether the default of the column would say something else.
    fn is_needed_by(self, event: &Envelope, is_hot: bool) -> bool {
        match self {
            Self::EventId | Self::EventType => true,
            Self::EventVersion => event.event_version() != 1,
            Self::AggregateType => *event.aggregate_type() != AggregateType::GLOBAL,
            Self::AggregateId => event.aggregate_id().is_some(),
            Self::PartitionKey => partition_key(event).is_some(),
            Self::TenantId => event.tenant_id().is_some(),
            Self::Payload => matches!(event.payload(), Payload::Json(_)),
            Self::PayloadBytes => matches!(event.payload(), Payload::Bytes(_)),
            Self::ContentType => event.given_content_type().is_some(),
            Self::Headers => !event.header_map().is_empty(),
            Self::OccurredAt => event.moment().is_some(),
            Self::AvailableAt => event.delivery() != Delivery::AtOnce,
            Self::LockedBy | Self::LockedUntil | Self::LockToken => {
                is_hot && LocalLease::leases(event)
            }
            Self::Status => status(event) != Status::New.code(),
            Self::OrderingKey => event.is_ordered(),
            Self::Shard => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::EventType;
    use crate::id::OwnerId;
    use crate::table::TablePrefix;

    fn plain() -> Envelope {
        let payload = Payload::json_text("{}").unwrap();
        Envelope::new(EventType::new("order.placed").unwrap(), payload)
    }

    fn needed_by(envelopes: &[Envelope], hot: Option<LocalLease<'_>>) -> Vec<Column> {
        Column::needed_by(&Insert { tables: &Tables::default(), envelopes, locks: &[], hot })
    }

    #[test]
    fn a_lease_is_written_where_an_event_goes_hot() {
        let (owner, length) = (OwnerId::generate(), Duration::from_secs(15));
        let hot = Some(LocalLease { owner: &owner, length, keyed: true });
        let keyed = plain().aggregate("order", "7").unwrap();

        assert!(needed_by(&[plain()], hot).contains(&Column::LockToken));
        assert!(!needed_by(&[keyed], hot).contains(&Column::LockToken));
    }

    #[test]
    fn a_plain_event_needs_three_columns() {
        let columns = needed_by(&[plain()], None);

        assert_eq!(
            Column::insert(&Tables::new(TablePrefix::new("eu_").unwrap()), &columns),
            "insert into eu_outbox_event (event_id, event_type, payload) "
        );
    }

    #[test]
    fn an_event_waits_where_it_is_delayed() {
        let at_once = plain().deliver_after(Duration::ZERO);
        let later = plain().deliver_after(Duration::from_secs(1));

        assert!(!needed_by(&[plain(), at_once], None).contains(&Column::Status));
        assert!(needed_by(&[plain(), later], None).contains(&Column::Status));
    }

    #[test]
    fn what_one_event_needs_all_of_them_name() {
        let bytes = Payload::bytes([1_u8]).unwrap();
        let other = Envelope::new(EventType::new("order.sent").unwrap(), bytes);
        let other = other.aggregate("order", "7").unwrap().version(2).unwrap();

        assert_eq!(
            needed_by(&[plain(), other], None),
            [
                Column::EventId,
                Column::EventType,
                Column::EventVersion,
                Column::AggregateType,
                Column::AggregateId,
                Column::Payload,
                Column::PayloadBytes,
            ]
        );
    }
}
