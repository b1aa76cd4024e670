use pillarbox::{Event, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("account.opened", aggregate = "account")]
struct AccountOpened(u8, #[event(id, key)] i64, #[event(tenant)] String);

#[derive(Serialize, Deserialize, Event)]
#[event("account.closed", aggregate = "account")]
struct AccountClosed {
    #[event(id)]
    #[event(tenant)]
    r#type: String,
}

fn main() {
    let opened = AccountOpened(1, -5, "bank".into());
    let closed = AccountClosed { r#type: "savings".into() };

    assert_eq!(opened.0, 1);
    assert_eq!(opened.aggregate_id(), Some("-5".into()));
    assert_eq!(opened.key(), Key::Given("-5".into()));
    assert_eq!(opened.tenant(), Some("bank".into()));
    assert_eq!(closed.aggregate_id(), Some("savings".into()));
    assert_eq!(closed.key(), Key::Aggregate);
    assert_eq!(closed.tenant(), Some("savings".into()));
}
