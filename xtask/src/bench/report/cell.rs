//! The values and goals of the JSON as cells of a table.

use serde_json::Value;

pub(super) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(super) fn ratio(value: &Value) -> String {
    value.as_f64().map(|ratio| format!("{ratio:.2}")).unwrap_or_default()
}

pub(super) fn spread(value: &Value) -> String {
    format!("{}-{}", ratio(&value[0]), ratio(&value[1]))
}

pub(super) fn pair(value: &Value) -> String {
    if value.is_object() {
        format!("{} / {}", number(&value["ours"]), number(&value["limit"]))
    } else {
        String::new()
    }
}

/// Three digits that count; more would only be noise.
pub(super) fn number(value: &Value) -> String {
    match value.as_f64() {
        None => String::new(),
        Some(number) if number >= 100.0 => with_spaces(&format!("{number:.0}")),
        Some(number) if number >= 10.0 => format!("{number:.1}"),
        Some(number) => format!("{number:.2}"),
    }
}

/// A whole number, to its last digit.
pub(super) fn size(value: &Value) -> String {
    value.as_u64().map(|size| with_spaces(&size.to_string())).unwrap_or_default()
}

/// `1234567` as `1 234 567`.
pub(in crate::bench) fn with_spaces(digits: &str) -> String {
    let groups: Vec<&[u8]> = digits.as_bytes().rchunks(3).rev().collect();
    let groups = groups.into_iter().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(" ")
}

/// How many of such a cost, in microseconds, go into a second.
pub(super) fn each_second(cost: &Value) -> Value {
    cost.as_f64().filter(|cost| *cost > 0.0).map(|cost| 1e6 / cost).into()
}

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

    pub(super) fn text(self) -> String {
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
