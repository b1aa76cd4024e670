use pillarbox::{Envelope, Outbox};

async fn place(outbox: &Outbox, pool: &sqlx::PgPool) -> pillarbox::Result<()> {
    outbox.emit_envelope(pool, Envelope::json("order.placed", &7)?).await?;
    Ok(())
}

fn main() {}
