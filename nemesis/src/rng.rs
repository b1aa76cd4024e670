//! SeededRng that can be had again: the same seed, the same choices.

use std::time::Duration;

/// A small generator (xorshift), good enough to choose whom to kill and when.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// Creates a generator from a seed.
    pub const fn new(seed: u64) -> Self {
        // Zero would stay zero for ever.
        Self(seed ^ 0x9e37_79b9_7f4a_7c15)
    }

    /// One of `count` numbers, from zero.
    pub const fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 8) % count
    }

    /// A time from `least` up to twice that.
    pub fn jittered(&mut self, least: Duration) -> Duration {
        let millis = u64::try_from(least.as_millis()).unwrap_or(u64::MAX).max(1);
        least + Duration::from_millis(self.below(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_choices() {
        let choices = |seed| {
            let mut rng = SeededRng::new(seed);
            (0..50).map(|_| rng.below(10)).collect::<Vec<_>>()
        };

        assert_eq!(choices(7), choices(7));
        assert_ne!(choices(7), choices(8));
    }
}
