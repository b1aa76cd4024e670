//! How the rows of one outbox are claimed and ordered: the same for everyone who works on it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Result};

/// How rows are claimed and ordered; one setting for all relays of an outbox.
///
/// # Examples
/// ```
/// use pillarbox::store::{ClaimMode, DeliveryMode, Order};
///
/// let competing = DeliveryMode { claim: ClaimMode::Rows, order: Order::Key };
/// assert_eq!(competing.to_string(), "claim = rows, order = key");
/// assert_eq!(DeliveryMode::default(), DeliveryMode { claim: ClaimMode::Shards, order: Order::Key });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeliveryMode {
    /// How a relay comes by rows.
    pub claim: ClaimMode,
    /// What is delivered in order.
    pub order: Order,
}

/// How a relay comes by rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// It owns shards and reads them, with no write per event: the fast way.
    #[default]
    Shards,
    /// It leases row by row, and any relay takes any due row: for slow, uneven listeners.
    Rows,
    /// Nobody delivers from the tables; another program reads them, or the database's log.
    None,
}

/// What is delivered in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The events of a key, one after the other.
    #[default]
    Key,
    /// Nothing.
    None,
}

impl ClaimMode {
    /// The word in the `claim` column of `outbox_setting`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shards => "shards",
            Self::Rows => "rows",
            Self::None => "none",
        }
    }

    /// The mode that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Shards, Self::Rows, Self::None].into_iter().find(|mode| mode.as_str() == word)
    }
}

impl Order {
    /// The word in the `ordered` column of `outbox_setting`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::None => "none",
        }
    }

    /// The order that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Key, Self::None].into_iter().find(|order| order.as_str() == word)
    }
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim = {}, order = {}", self.claim.as_str(), self.order.as_str())
    }
}

impl DeliveryMode {
    /// Two relays that claim in different ways would deliver the same events.
    pub(super) fn refuse_other(self, wanted: Self) -> Result<()> {
        if self == wanted {
            return Ok(());
        }
        let message = format!(
            "the tables are set to `{self}`, and this relay to `{wanted}`: change one of them \
             (`store.configure` changes the tables, once every relay is stopped)"
        );
        Err(Error::new(ErrorKind::Configuration, message))
    }
}

/// A mode is not changed under the hands of a relay.
pub(super) fn refuse_living(owners: u64) -> Result<()> {
    if owners == 0 {
        return Ok(());
    }
    let message = format!(
        "the mode cannot be changed while relays live ({owners} of them): stop them, or wait for \
         their leases to end"
    );
    Err(Error::new(ErrorKind::Configuration, message))
}
