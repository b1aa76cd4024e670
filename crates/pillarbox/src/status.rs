//! The state of an event in its life.

/// The state of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not delivered yet.
    New,
    /// Delivered.
    Done,
    /// Delayed, deferred, or to be retried: it waits for its time.
    Waiting,
    /// Given up.
    Dead,
    /// Given up, and its key waits for it.
    Held,
}

impl Status {
    /// The names that stand for the codes in statements.
    pub(crate) const NAMED: [(&str, Self); 5] = [
        ("{new}", Self::New),
        ("{done}", Self::Done),
        ("{waiting}", Self::Waiting),
        ("{dead}", Self::Dead),
        ("{held}", Self::Held),
    ];

    /// The number in the `status` column.
    pub const fn code(self) -> i16 {
        match self {
            Self::New => 0,
            Self::Done => 1,
            Self::Waiting => 2,
            Self::Dead => 3,
            Self::Held => 4,
        }
    }

    /// The status that a number in the column stands for.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Waiting),
            3 => Some(Self::Dead),
            4 => Some(Self::Held),
            _ => None,
        }
    }
}
