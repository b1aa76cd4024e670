use pillarbox::{Envelope, Outbox};

async fn place(outbox: &Outbox, pool: &sqlx::SqlitePool) -> pillarbox::Result<()> {
    let mut tx = outbox.begin(pool).await?;
    tx.commit().await?;
    tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
    Ok(())
}

fn main() {}
