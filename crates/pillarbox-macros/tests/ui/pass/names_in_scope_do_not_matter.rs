// The generated code names everything from the root: a user's own `Option` or `String` is no trap.
#![allow(dead_code)]

use serde::{Deserialize, Serialize};

struct Option;
struct String;
struct Some;
struct Key;
trait ToString {}

#[derive(Serialize, Deserialize, pillarbox::Event)]
#[event("name.taken", aggregate = "name")]
struct NameTaken {
    #[event(id, key, tenant)]
    name: u8,
}

fn main() {
    let taken = NameTaken { name: 3 };

    assert_eq!(pillarbox::Event::aggregate_id(&taken).as_deref(), std::option::Option::Some("3"));
    assert_eq!(pillarbox::Event::key(&taken), pillarbox::Key::Given("3".into()));
    assert_eq!(pillarbox::Event::tenant(&taken).as_deref(), std::option::Option::Some("3"));
}
