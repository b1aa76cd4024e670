//! Assertions on what was emitted.

use pillarbox::{Envelope, Event};

use super::{TestOutbox, decode, line};

/// Asserts that a committed event matches a pattern, with or without a guard.
///
/// When none does, the message lists what was emitted instead. The pattern binds references:
/// `OrderPlaced { total_cents, .. } if *total_cents > 100`.
///
/// # Examples
/// ```
/// use pillarbox::Event;
/// use pillarbox_testkit::{TestOutbox, assert_emitted};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed")]
/// struct OrderPlaced { order_id: i64, email: String }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let app = TestOutbox::new();
/// let mut tx = app.outbox().begin(app.store()).await?;
/// tx.emit(&OrderPlaced { order_id: 7, email: "ada@example.com".into() }).await?;
/// tx.commit().await?;
///
/// assert_emitted!(app, OrderPlaced { order_id: 7, .. });
/// assert_emitted!(app, OrderPlaced { email, .. } if email.starts_with("ada@"));
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[macro_export]
macro_rules! assert_emitted {
    ($app:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $crate::TestOutbox::assert_emitted(
            &$app,
            |event| ::core::matches!(event, $pattern $(if $guard)?),
            ::core::stringify!($pattern $(if $guard)?),
        )
    };
}

/// Asserts that no committed event matches a pattern, with or without a guard.
///
/// # Examples
/// ```
/// # use pillarbox::Event;
/// # use serde::{Deserialize, Serialize};
/// use pillarbox_testkit::{TestOutbox, assert_not_emitted};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed")]
/// struct OrderPlaced { order_id: i64 }
///
/// let app = TestOutbox::new();
/// assert_not_emitted!(app, OrderPlaced { .. });
/// ```
#[macro_export]
macro_rules! assert_not_emitted {
    ($app:expr, $pattern:pat $(if $guard:expr)? $(,)?) => {
        $crate::TestOutbox::assert_not_emitted(
            &$app,
            |event| ::core::matches!(event, $pattern $(if $guard)?),
            ::core::stringify!($pattern $(if $guard)?),
        )
    };
}

impl TestOutbox {
    /// What [`assert_emitted!`](crate::assert_emitted) does: `what` is said of what is missing.
    ///
    /// # Panics
    /// When no committed event fits.
    #[track_caller]
    pub fn assert_emitted<E: Event>(&self, fits: impl Fn(&E) -> bool, what: &str) {
        let envelopes = self.envelopes();
        let found = envelopes.iter().any(|envelope| decode(envelope).is_some_and(|it| fits(&it)));
        assert!(found, "no event was emitted that is `{what}`; {}", list(&envelopes));
    }

    /// What [`assert_not_emitted!`](crate::assert_not_emitted) does.
    ///
    /// # Panics
    /// When a committed event fits.
    #[track_caller]
    pub fn assert_not_emitted<E: Event>(&self, fits: impl Fn(&E) -> bool, what: &str) {
        let envelopes = self.envelopes();
        let found = envelopes.iter().find(|it| decode(it).is_some_and(|event| fits(&event)));
        if let Some(found) = found {
            panic!("an event was emitted that is `{what}`: {}", line(found));
        }
    }
}

fn list(envelopes: &[Envelope]) -> String {
    if envelopes.is_empty() {
        return "nothing was emitted".to_owned();
    }
    let lines: Vec<String> = envelopes.iter().map(|it| format!("\n  {}", line(it))).collect();
    format!("emitted:{}", lines.concat())
}
