//! The other side: an order that arrives becomes an invoice.

use pillarbox::{Accepted, Cx, Event, Failure, Inbox, Listener, Outbox, PayloadHash};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;

use crate::OrderPlaced;

#[derive(Serialize, Deserialize, Event)]
#[event("invoice.written", aggregate = "invoice")]
pub(crate) struct InvoiceWritten {
    #[event(id)]
    pub(crate) order_id: i64,
}

pub(crate) struct Billing {
    pub(crate) pool: SqlitePool,
    pub(crate) outbox: Outbox,
    pub(crate) inbox: Inbox,
}

/// Note, invoice and event in one transaction of the other database: all or nothing, once.
impl Listener<OrderPlaced> for Billing {
    async fn on_event(&self, OrderPlaced { order_id }: OrderPlaced, cx: Cx) -> Result<(), Failure> {
        let mut tx = self.outbox.begin(&self.pool).await?;
        let hash = PayloadHash::of(cx.envelope().payload().as_bytes());
        match self.inbox.accept(&mut *tx, "shop", cx.id().as_str(), hash).await? {
            Accepted::FirstTime => {
                sqlx::query("insert into invoice values ($1)")
                    .bind(order_id)
                    .execute(&mut *tx)
                    .await?;
                tx.emit(&InvoiceWritten { order_id }).await?;
                tx.commit().await?;
            }
            Accepted::Duplicate => println!("order {order_id} came again, to no effect"),
            Accepted::Conflict => return Err(Failure::dead("another payload under the same id")),
        }
        // The worst moment for a crash: all is done, and the shop does not know.
        if order_id == 2 && cx.attempt() == 1 { Err("the answer is lost".into()) } else { Ok(()) }
    }
}
