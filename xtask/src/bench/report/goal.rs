//! What a figure should come to.

use serde_json::Value;

/// What a ratio should be, or ours alone.
#[derive(Clone, Copy)]
pub(super) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    OursAtMost(f64),
    MoreByAtMost(f64),
}

impl Goal {
    pub(super) fn of(value: &Value) -> Option<Self> {
        let number = |name: &str| value[name].as_f64();
        number("at_least")
            .map(Self::AtLeast)
            .or_else(|| number("at_most").map(Self::AtMost))
            .or_else(|| number("ours_at_most").map(Self::OursAtMost))
            .or_else(|| number("more_by_at_most").map(Self::MoreByAtMost))
    }

    pub(super) fn words(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {least}"),
            Self::AtMost(most) => format!("≤ {most}"),
            Self::OursAtMost(most) => format!("ours ≤ {most}"),
            Self::MoreByAtMost(most) => format!("≤ + {most}"),
        }
    }

    pub(super) fn verdict(self, figure: &Value) -> &'static str {
        let number = |name: &str| figure[name].as_f64().unwrap_or(f64::NAN);
        let is_met = match self {
            Self::AtLeast(least) => number("ratio") >= least,
            Self::AtMost(most) => number("ratio") <= most,
            Self::OursAtMost(most) => number("ours") <= most,
            Self::MoreByAtMost(most) => number("ours") - number("limit") <= most,
        };
        if is_met { "yes" } else { "no" }
    }
}
