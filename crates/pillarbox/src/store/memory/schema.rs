//! The settings of the memory store; there are no tables.

use async_trait::async_trait;

use super::MemoryStore;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::store::schema::refuse_living;
use crate::store::{DeliveryMode, OutboxConfig, Schema};
use crate::table::TablePrefix;

#[async_trait]
impl Schema for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn prefix(&self) -> TablePrefix {
        TablePrefix::default()
    }

    fn is_pooled(&self) -> bool {
        false
    }

    async fn migrate(&self) -> Result<()> {
        Ok(())
    }

    async fn config(&self) -> Result<OutboxConfig> {
        Ok(OutboxConfig { shards: self.shards, mode: self.state().mode })
    }

    async fn mark_seq(&self) -> Result<()> {
        Ok(())
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        self.state().configure(*mode, self.clock.now())
    }
}

impl State {
    pub(super) fn configure(&mut self, mode: DeliveryMode, now: Timestamp) -> Result<()> {
        // One that lapsed would renew, and live on in a mode that is not its own.
        self.remove_lapsed(now);
        refuse_living(self.owners.len() as u64)?;
        self.mode = mode;
        Ok(())
    }
}
