use pillarbox::{MemoryStore, Outbox};

struct OrderPlaced;

async fn place(outbox: &Outbox, store: &MemoryStore) -> pillarbox::Result<()> {
    let mut tx = outbox.begin(store).await?;
    tx.emit(&OrderPlaced).await?;
    tx.commit().await
}

fn main() {}
