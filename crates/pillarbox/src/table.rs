//! Table names: the only thing that is ever formatted into SQL, so it is a checked type.

use std::{
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

use crate::error::{Error, Result};
use crate::status::Status;

/// What the tables' names begin with: `billing_` gives `billing_outbox_event`.
///
/// # Examples
/// ```
/// use pillarbox::TablePrefix;
///
/// assert_eq!(TablePrefix::new("billing_")?.as_str(), "billing_");
/// assert!(TablePrefix::new("x; drop table orders").is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TablePrefix(Cow<'static, str>);

impl TablePrefix {
    /// Checks a prefix: up to 24 lowercase letters, digits and underscores, no digit first.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is anything else.
    pub fn new(prefix: impl Into<Cow<'static, str>>) -> Result<Self> {
        let prefix = prefix.into();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        let sound = prefix.len() <= 24
            && prefix.bytes().all(plain)
            && !prefix.starts_with(|first: char| first.is_ascii_digit());
        if !sound {
            return Err(Error::invalid(format!(
                "table prefix {prefix:?} may hold up to 24 of a-z, 0-9 and _, and no digit first"
            )));
        }
        Ok(Self(prefix))
    }

    /// The prefix as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Renders SQL templates for one prefix, each of them once.
#[derive(Clone, Default)]
pub struct Tables {
    prefix: TablePrefix,
    /// What `{now}` stands for, where a dialect has no short word for it.
    now: &'static str,
    /// Behind a pooler: statements have no names.
    nameless: bool,
    rendered: Arc<RwLock<HashMap<&'static str, Arc<str>>>>,
}

impl Tables {
    /// The tables whose names begin with `prefix`.
    pub fn new(prefix: TablePrefix) -> Self {
        Self { prefix, ..Self::default() }
    }

    /// The tables whose names begin with `prefix`, with this expression for every `{now}`.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_clock(prefix: TablePrefix, now: &'static str) -> Self {
        Self { prefix, now, ..Self::default() }
    }

    /// The same tables behind a pooler, in whose sessions no statement has a name.
    #[must_use]
    pub fn pooler(mut self) -> Self {
        self.nameless = true;
        self
    }

    /// Whether statements may have names in the server's sessions.
    pub fn are_statements_named(&self) -> bool {
        !self.nameless
    }

    /// The same behind a pooler or not, on the tables whose names begin with `prefix`.
    pub(crate) fn moved(&self, prefix: TablePrefix) -> Self {
        Self { prefix, now: self.now, nameless: self.nameless, rendered: Arc::default() }
    }

    /// The prefix of these tables.
    pub fn prefix(&self) -> &TablePrefix {
        &self.prefix
    }

    /// The template with the prefix in place of every `{p}`, and the code of a status in place of its
    /// name: `status = {waiting}`.
    pub fn render(&self, template: &'static str) -> Arc<str> {
        let known = self.rendered.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(sql) = known.get(template) {
            return Arc::clone(sql);
        }
        drop(known);
        let mut sql = template.replace("{p}", self.prefix.as_str()).replace("{now}", self.now);
        for (name, status) in Status::NAMED {
            sql = sql.replace(name, &status.code().to_string());
        }
        let sql: Arc<str> = sql.into();
        let mut known = self.rendered.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(template).or_insert(sql))
    }
}

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tables").field(&self.prefix.as_str()).finish()
    }
}
