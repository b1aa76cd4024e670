use pillarbox::store::{Action, Filter};
use pillarbox::{Admin, SqliteStore};

#[tokio::main]
async fn main() -> pillarbox::Result<()> {
    let admin = Admin::new(SqliteStore::connect("sqlite://shop.db").await?);
    let refused = Filter { error: Some("connection refused".into()), ..Filter::default() };
    let replayed = admin.operate_matching(Action::Replay, refused).by("ana")?.run().await?;
    println!("{} of {} dead letters are new again", replayed.changed, replayed.matched);
    Ok(())
}
