//! The derive macro of `pillarbox`; use it as `pillarbox::Event`.
//!
//! This crate is not meant to be named in your `Cargo.toml`: `pillarbox` re-exports the derive
//! beside the trait of the same name, under its feature `macros`.

mod attribute;
mod event;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a struct an event: its name on the wire, its version and what it is about.
///
/// On the struct, `#[event("order.placed")]` gives the name, which comes first and is required.
/// What may follow it:
///
/// | setting              | meaning                                           | default       |
/// |----------------------|---------------------------------------------------|---------------|
/// | `version = 2`        | version of the payload's shape, 1 or more         | `version = 1` |
/// | `aggregate = "order"`| kind of thing the event is about                  | nothing in particular |
/// | `free`               | delivered in no particular order                  | ordered by aggregate |
///
/// On a field, each mark at most once per struct:
///
/// | mark               | meaning                                   | the field's type               |
/// |--------------------|-------------------------------------------|--------------------------------|
/// | `#[event(id)]`     | which aggregate; needs `aggregate = "…"`  | `T: Display`                   |
/// | `#[event(key)]`    | what the event is ordered by              | `T: Display`                   |
/// | `#[event(tenant)]` | whose event it is                         | `T: Display`, or an `Option` of it |
///
/// One field may carry several marks: `#[event(id, key)]`. A `free` event has no `key`.
///
/// The struct must also be `Serialize` and `Deserialize`, and own what it holds. Bounds on type
/// parameters are taken as written; none are added.
///
/// # Examples
///
/// ```
/// use pillarbox::{AggregateType, Event, EventType, Key};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed", version = 2, aggregate = "order")]
/// struct OrderPlaced {
///     #[event(id)]
///     order_id: u64,
///     #[event(key)]
///     customer: String,
///     #[event(tenant)]
///     shop: Option<String>,
/// }
///
/// let placed = OrderPlaced { order_id: 7, customer: "ada".into(), shop: None };
///
/// assert_eq!(OrderPlaced::TYPE, EventType::from_static("order.placed"));
/// assert_eq!(OrderPlaced::VERSION, 2);
/// assert_eq!(OrderPlaced::AGGREGATE, AggregateType::from_static("order"));
/// assert_eq!(placed.aggregate_id().as_deref(), Some("7"));
/// assert!(matches!(placed.key(), Key::Given(key) if key == "ada"));
/// assert_eq!(placed.tenant(), None);
/// ```
#[proc_macro_derive(Event, attributes(event))]
pub fn derive_event(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    event::expand(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
