use pillarbox::{Event, Key};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Event)]
#[event("page.seen")]
struct PageSeen {
    #[event(tenant)]
    site: Option<u32>,
}

#[derive(Serialize, Deserialize, Event)]
#[event("page.left")]
struct PageLeft(#[event(tenant)] std::option::Option<String>);

fn main() {
    assert_eq!(PageSeen { site: Some(9) }.tenant(), Some("9".into()));
    assert_eq!(PageSeen { site: None }.tenant(), None);
    assert_eq!(PageSeen { site: None }.key(), Key::Aggregate);
    assert_eq!(PageLeft(Some("docs".into())).tenant(), Some("docs".into()));
    assert_eq!(PageLeft(None).tenant(), None);
}
