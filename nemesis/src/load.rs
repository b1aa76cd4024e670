//! What one transaction of a varied load does, drawn by chance.

use std::cmp::Reverse;
use std::time::Duration;

use pillarbox::MAX_PAYLOAD;

use crate::bank::TxEnd;
use crate::rng::SeededRng;
use crate::transfer::Transfer;

/// As many tenants share the accounts.
pub const TENANTS: i64 = 7;

/// Longer than the text around it.
const FRAME: usize = 256;

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// From one to five changes in one order of accounts, so that no two transactions wait for each
    /// other, and the favourite ones last, so that nobody waits for long.
    pub parts: Vec<Part>,
    /// How it ends.
    pub end: TxEnd,
    /// How long it stays open before that.
    pub open_for: Duration,
}

/// One change and its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which account.
    pub account: i64,
    /// Whether its event is ordered by the account; only then does the balance change.
    pub is_ordered: bool,
    /// Whether a savepoint around it is rolled back.
    pub is_rolled_back: bool,
    amount: i64,
    delay: u64,
    filler: usize,
}

impl Plan {
    /// The next one, over so many accounts; a long one stays open for up to `longest`.
    pub fn draw(rng: &mut SeededRng, accounts: i64, longest: Duration) -> Self {
        let count = 1 + rng.below(5);
        let mut parts: Vec<Part> = (0..count).map(|_| Part::draw(rng, accounts)).collect();
        parts.sort_by_key(|part| Reverse(part.account));
        let end = match rng.below(10) {
            0 | 1 => TxEnd::Rollback,
            2 => TxEnd::Drop,
            _ => TxEnd::Commit,
        };
        let is_long = rng.below(100) == 0;
        let open_for = if is_long { rng.jittered(longest / 2) } else { Duration::ZERO };
        Self { parts, end, open_for }
    }
}

impl Part {
    fn draw(rng: &mut SeededRng, accounts: i64) -> Self {
        let is_ordered = rng.below(2) == 0;
        let is_delayed = !is_ordered && rng.below(10) == 0;
        Self {
            account: zipf_account(rng, accounts),
            is_ordered,
            is_rolled_back: rng.below(10) == 0,
            amount: i64::try_from(rng.below(201)).unwrap_or(0) - 100,
            delay: if is_delayed { 100 + rng.below(1500) } else { 0 },
            filler: size(rng),
        }
    }

    /// What it adds to the balance.
    pub const fn amount(&self) -> i64 {
        if self.is_ordered { self.amount } else { 0 }
    }

    /// Its event, with the account's count.
    pub fn event(&self, n: i64) -> Transfer {
        let Self { account, delay, filler, .. } = *self;
        // Not one letter only: what is cut and filled up again must not look alike.
        let alphabet =
            ('a'..='z').cycle().skip(usize::try_from(n.unsigned_abs() % 26).unwrap_or(0));
        let filler = alphabet.take(filler).collect();
        Transfer { account, n, amount: self.amount(), tenant: account % TENANTS, delay, filler }
    }
}

/// Zipf: the second account has half as many events as the first, the third a third, and so on.
fn zipf_account(rng: &mut SeededRng, accounts: i64) -> i64 {
    let rank = power(rng, accounts.unsigned_abs());
    i64::try_from(rank).unwrap_or(1).clamp(1, accounts) - 1
}

/// Most are short, one of ten is longer, and few are as long as an event may be.
fn size(rng: &mut SeededRng) -> usize {
    let most = match rng.below(500) {
        0 => MAX_PAYLOAD - FRAME,
        1..50 => 64 * 1024,
        _ => 64,
    };
    usize::try_from(power(rng, most as u64)).unwrap_or(0)
}

/// From 1 to `most`, each power of two as likely as any other.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size by rng need not be exact"
)]
fn power(rng: &mut SeededRng, most: u64) -> u64 {
    let part = rng.below(1 << 20) as f64 / f64::from(1 << 20);
    (most as f64).powf(part) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONGEST: Duration = Duration::from_secs(2);

    fn plans(count: usize) -> Vec<Plan> {
        let mut rng = SeededRng::new(7);
        (0..count).map(|_| Plan::draw(&mut rng, 1000, LONGEST)).collect()
    }

    #[test]
    fn every_kind_of_transaction_is_drawn() {
        let plans = plans(5000);

        assert!(plans.iter().all(|plan| (1..=5).contains(&plan.parts.len())));
        assert!(plans.iter().all(|plan| plan.parts.is_sorted_by_key(|part| Reverse(part.account))));
        let taken_back = plans.iter().filter(|plan| plan.end != TxEnd::Commit).count();
        assert!((1350..1650).contains(&taken_back), "{taken_back} of 5000");
        let long = plans.iter().filter(|plan| !plan.open_for.is_zero()).count();
        assert!((25..100).contains(&long), "{long} of 5000");
        let parts: Vec<&Part> = plans.iter().flat_map(|plan| &plan.parts).collect();
        assert!(
            parts.iter().any(|part| part.is_rolled_back) && parts.iter().any(|it| it.delay > 0)
        );
        assert!(parts.iter().any(|part| part.filler > MAX_PAYLOAD / 4));
        assert!(parts.iter().all(|part| part.event(1).envelope(true).is_ok()));
    }

    #[test]
    fn the_first_account_is_everybodys_favourite() {
        let mut counts = vec![0; 1000];
        for part in plans(5000).iter().flat_map(|plan| &plan.parts) {
            counts[usize::try_from(part.account).unwrap()] += 1;
        }

        assert!(counts[0] > counts[1] && counts[1] > counts[9], "{:?}", &counts[..10]);
        assert!(counts[500..].iter().sum::<i32>() > 0);
    }
}
