//! Maps by numbers that nobody outside chooses, such as places in a table: one multiplication hashes
//! them, where a hash that withstands an enemy would cost more than the look itself.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

pub(super) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
pub(super) type NumberSet<K> = HashSet<K, BuildHasherDefault<NumberHasher>>;

#[derive(Debug, Default)]
pub(super) struct NumberHasher(u64);

/// 2^64 divided by the golden ratio: neighbours come to lie far apart.
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl NumberHasher {
    fn add(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(GOLDEN).rotate_left(26);
    }
}

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.add((*byte).into()));
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_i64(&mut self, number: i64) {
        self.add(number.cast_unsigned());
    }

    fn write_i16(&mut self, number: i16) {
        self.add(number.cast_unsigned().into());
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use std::hash::BuildHasher;

    use super::*;
    use crate::id::Seq;

    /// A table of hashes looks at the last bits first and then at the first ones.
    #[test]
    fn neighbours_lie_apart() {
        let hash = |seq| BuildHasherDefault::<NumberHasher>::default().hash_one(Seq(seq));
        let (mut last, mut first) = (HashSet::new(), HashSet::new());
        for seq in 0..1024 {
            last.insert(hash(seq) % 1024);
            first.insert(hash(seq) >> 57);
        }

        assert!(last.len() > 500, "{}", last.len());
        assert_eq!(first.len(), 128);
    }
}
