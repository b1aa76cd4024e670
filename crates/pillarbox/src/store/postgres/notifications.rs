//! NOTIFY and LISTEN, on connections of their own: never inside a business transaction, where one
//! lock for all of them would make writers wait for each other's commits.

use std::fmt;

use async_trait::async_trait;
use sqlx::postgres::{PgListener, PgPoolOptions};

use super::PostgresStore;
use crate::error::Result;
use crate::store::Notifications;

pub(super) struct PostgresNotifications(PgListener);

impl PostgresNotifications {
    pub(super) async fn connect(store: &PostgresStore) -> Result<Self> {
        let options = (*store.pool.connect_options()).clone();
        let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        let mut listener = PgListener::connect_with(&pool).await?;
        listener.listen(&Self::channel(store)).await?;
        Ok(Self(listener))
    }

    /// Tables of the same name in another schema notify too, which costs a read and nothing else.
    pub(super) fn channel(store: &PostgresStore) -> String {
        format!("{}outbox_event", store.tables.prefix().as_str())
    }
}

#[async_trait]
impl Notifications for PostgresNotifications {
    async fn recv(&mut self) -> Result<()> {
        // `None`: the connection was lost, and is made again by the next call.
        self.0.try_recv().await?;
        while self.0.next_buffered().is_some() {}
        Ok(())
    }
}

impl fmt::Debug for PostgresNotifications {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresNotifications")
    }
}
