//! Business transactions, the same for every database. Each database has in `emit.rs` its statements
//! and how it begins a transaction and inserts many rows.

/// The methods of [`Database`](super::Database) that run business transactions.
macro_rules! transactions {
    () => {
        async fn transact(&self, order: i64, emit: Emit) -> Result {
            if emit == Emit::Ours {
                self.emit(&self.outbox, order, true).await?;
                return Ok(());
            }
            let mut tx = emit::begin(&self.pool).await?;
            sqlx::query(emit::BUSINESS).bind(order).bind(1999_i64).execute(&mut *tx).await?;
            let insert = match emit {
                Emit::Baseline => Some(emit::BASELINE),
                Emit::Slim => Some(emit::SLIM),
                Emit::Ours | Emit::Nothing => None,
            };
            if let Some(insert) = insert {
                sqlx::query(insert)
                    .bind(EventId::generate().as_str())
                    .bind(order.to_string())
                    .bind(serde_json::to_string(&OrderPlaced::new(order))?)
                    .execute(&mut *tx)
                    .await?;
            }
            Ok(tx.commit().await?)
        }

        async fn emit(
            &self,
            outbox: &Outbox,
            order: i64,
            keyed: bool,
        ) -> Result<(EventId, Instant)> {
            let mut tx = outbox.begin(&self.pool).await?;
            sqlx::query(emit::BUSINESS).bind(order).bind(1999_i64).execute(&mut *tx).await?;
            let id = emit_order(&mut tx, order, keyed).await?;
            tx.commit().await?;
            Ok((id, now()))
        }

        async fn transact_many(&self, first: i64, count: u32, emit: Emit) -> Result {
            let events = (first..first + i64::from(count)).map(OrderPlaced::new);
            let events: Vec<OrderPlaced> = events.collect();
            if emit == Emit::Ours {
                let mut tx = self.outbox.begin(&self.pool).await?;
                tx.emit_all(&events).await?;
                return Ok(tx.commit().await?);
            }
            let mut tx = emit::begin(&self.pool).await?;
            let sql = if emit == Emit::Slim { emit::SLIM_MANY } else { emit::BASELINE_MANY };
            emit::insert_many(&mut tx, sql, &events).await?;
            Ok(tx.commit().await?)
        }
    };
}

/// Inserts many rows by statements of 500 rows each.
macro_rules! insert_in_chunks {
    ($database:ty, $connection:ty) => {
        pub(super) async fn insert_many(
            tx: &mut $connection,
            sql: &'static str,
            events: &[OrderPlaced],
        ) -> Result {
            for events in events.chunks(500) {
                let payloads: std::result::Result<Vec<String>, _> =
                    events.iter().map(serde_json::to_string).collect();
                let mut insert = QueryBuilder::<$database>::new(sql);
                insert.push_values(events.iter().zip(payloads?), |mut row, (event, payload)| {
                    row.push_bind(EventId::generate().as_str().to_owned())
                        .push("'order.placed'")
                        .push("'order'")
                        .push_bind(event.order_id.to_string())
                        .push_bind(payload);
                });
                insert.build().execute(&mut *tx).await?;
            }
            Ok(())
        }
    };
}
