//! The derive macro of `pillarbox`, re-exported as `pillarbox::Event`.
//!
//! Do not depend on this crate directly: `pillarbox` re-exports the derive macro beside the trait of
//! the same name, under its feature `macros`.

mod attribute;
mod event;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `Event` for a struct.
///
/// On the struct, `#[event("order.placed")]` sets the event type, which comes first and is required.
/// These settings may follow:
///
/// | setting              | meaning                                           | default       |
/// |----------------------|---------------------------------------------------|---------------|
/// | `version = 2`        | version of the payload's schema, 1 or more        | `version = 1` |
/// | `aggregate = "order"`| type of the entity that the event is about        | no aggregate  |
/// | `free`               | unordered                                         | ordered by aggregate |
///
/// On a field, each mark at most once per struct:
///
/// | mark               | meaning                                   | the field's type               |
/// |--------------------|-------------------------------------------|--------------------------------|
/// | `#[event(id)]`     | the aggregate id; needs `aggregate = "…"` | `T: Display`                   |
/// | `#[event(key)]`    | the ordering key                          | `T: Display`                   |
/// | `#[event(tenant)]` | the tenant                                | `T: Display`, or an `Option` of it |
///
/// One field may carry several marks: `#[event(id, key)]`. A `free` event has no `key`.
///
/// The struct must also implement `Serialize` and `Deserialize`, and own its data. The macro adds no
/// bounds to type parameters.
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
