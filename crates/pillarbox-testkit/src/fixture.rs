//! The backends that come with the kit.

pub(crate) mod memory;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod place;
#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "sqlite")]
pub(crate) mod sqlite;
