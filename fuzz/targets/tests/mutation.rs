//! Every target with its seeds, and with a few thousand inputs made of them by chance.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]

use pillarbox_fuzz_targets::{TARGETS, Target};

/// As many as take a second or two.
const CHANGED: u32 = 3000;

fn feed(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).unwrap();
    let seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    seeds.iter().for_each(|seed| (target.run)(seed));
    changed(target, &seeds);
}

fn changed(target: &Target, seeds: &[Vec<u8>]) {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    for _ in 0..CHANGED {
        let mut input = dice.one_of(seeds).clone();
        for _ in 0..=dice.below(4) {
            let other = dice.one_of(seeds);
            change(&mut input, other, &mut dice);
        }
        (target.run)(&input);
    }
}

/// Changes, drops or repeats a few bytes, or takes them from another input.
fn change(input: &mut Vec<u8>, other: &[u8], dice: &mut Dice) {
    const ODD: &[u8] = b"\0\n\r\"\\{}[]:,/?#@%*-+0959ax\xc3\x28\xfd\xfe\xff";
    let at = dice.below(input.len() + 1);
    let until = (at + dice.below(8)).min(input.len());
    match dice.below(5) {
        0 => input.insert(at, *dice.one_of(ODD)),
        1 => drop(input.drain(at..until)),
        2 => drop(input.splice(at..until, [*dice.one_of(ODD)])),
        3 => {
            let piece = input[at..until].repeat(1 + dice.below(40));
            input.splice(at..at, piece);
        }
        _ => {
            let from = dice.below(other.len() + 1);
            input.splice(at.., other[from..].iter().copied());
        }
    }
}

/// Chance that is the same in every run: xorshift.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn one_of<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.below(things.len())]
    }
}

/// One test of each target, and none that is not in the list.
macro_rules! targets {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                feed(stringify!($name));
            }
        )*

        #[test]
        fn every_target_has_a_test() {
            assert_eq!(TARGETS.map(|target| target.name), [$(stringify!($name)),*]);
        }
    };
}

targets!(envelope, headers, row, page, url, settings, context, pattern);
