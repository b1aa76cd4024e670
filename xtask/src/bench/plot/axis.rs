//! Where a number stands on an axis, and which numbers are written beside it.

/// How numbers become places.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scale {
    /// From nothing.
    Linear,
    Logarithmic,
}

/// An axis from one place of the picture to another.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// From nothing to what holds all numbers; by powers of ten where they are too far apart for
    /// the small ones to be seen.
    pub(super) fn of_values(numbers: &[f64], from: f64, to: f64) -> Self {
        let (least, most) = ends(numbers);
        if least > 0.0 && most / least > 20.0 {
            return Self::logarithmic(numbers, from, to);
        }
        let step = nice_step(most);
        let most = (most / step).ceil().max(1.0) * step;
        Self { scale: Scale::Linear, least: 0.0, most, from, to }
    }

    /// Whole powers of ten around all numbers.
    pub(super) fn logarithmic(numbers: &[f64], from: f64, to: f64) -> Self {
        let (least, most) = ends(numbers);
        let (least, most) = (least.log10().floor(), most.log10().ceil());
        let most = most.max(least + 1.0);
        let scale = Scale::Logarithmic;
        Self { scale, least: 10_f64.powf(least), most: 10_f64.powf(most), from, to }
    }

    pub(super) fn place(&self, number: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => number / self.most,
            Scale::Logarithmic => {
                let (least, most) = (self.least.log10(), self.most.log10());
                (number.max(self.least).log10() - least) / (most - least)
            }
        };
        self.from + share * (self.to - self.from)
    }

    /// The numbers to write, from the least.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let step = |number: f64| match self.scale {
            Scale::Linear => number + nice_step(self.most),
            Scale::Logarithmic => number * 10.0,
        };
        let past = self.most * 1.001;
        std::iter::successors(Some(self.least), |number| Some(step(*number)))
            .take_while(|number| *number <= past)
            .collect()
    }
}

/// Where the values of what grows stand: by their size, or one after the other if one is nothing.
#[derive(Clone, Debug)]
pub(super) struct Steps(Vec<(f64, f64)>);

impl Steps {
    pub(super) fn new(numbers: &[f64], from: f64, to: f64) -> Self {
        let mut numbers = numbers.to_vec();
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let (least, most) = ends(&numbers);
        let share = |(place, number): (usize, &f64)| {
            if least > 0.0 && most > least {
                (number / least).log10() / (most / least).log10()
            } else {
                place as f64 / (numbers.len().max(2) - 1) as f64
            }
        };
        let shares: Vec<f64> = numbers.iter().enumerate().map(share).collect();
        let places = shares.into_iter().map(|share| from + share * (to - from));
        Self(numbers.iter().copied().zip(places).collect())
    }

    pub(super) fn all(&self) -> &[(f64, f64)] {
        &self.0
    }

    pub(super) fn place(&self, number: f64) -> Option<f64> {
        self.0.iter().find(|(known, _)| (known - number).abs() < 1e-9).map(|(_, place)| *place)
    }
}

fn ends(numbers: &[f64]) -> (f64, f64) {
    let fold = |start: f64, pick: fn(f64, f64) -> f64| numbers.iter().copied().fold(start, pick);
    (fold(f64::INFINITY, f64::min), fold(f64::NEG_INFINITY, f64::max))
}

/// 1, 2 or 5 times a power of ten, about five of which make up the number.
fn nice_step(most: f64) -> f64 {
    let rough = most.max(f64::MIN_POSITIVE) / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0].into_iter().find(|nice| nice * power >= rough * 0.999);
    nice.unwrap_or(10.0) * power
}

/// `1500` as `1.5 k`, `1000000` as `1 M`, and `10240` as `10 Ki`.
pub(super) fn short(number: f64) -> String {
    if number >= 1024.0 && number % 1024.0 == 0.0 {
        return format!("{} Ki", number / 1024.0);
    }
    let (number, unit) = match number {
        number if number >= 1e6 => (number / 1e6, " M"),
        number if number >= 1e3 => (number / 1e3, " k"),
        number => (number, ""),
    };
    let digits = if (number - number.round()).abs() < 0.05 { 0 } else { 1 };
    format!("{number:.digits$}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linear_axis_begins_at_nothing_and_holds_all() {
        let axis = Axis::of_values(&[42_000.0, 97_000.0], 0.0, 100.0);

        let ticks: Vec<String> = axis.ticks().into_iter().map(short).collect();

        assert_eq!(ticks, ["0", "20 k", "40 k", "60 k", "80 k", "100 k"]);
        assert!((axis.place(50_000.0) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn numbers_are_written_short() {
        let short = [100.0, 1500.0, 10_240.0, 1_000_000.0].map(short);

        assert_eq!(short, ["100", "1.5 k", "10 Ki", "1 M"]);
    }

    #[test]
    fn numbers_far_apart_stand_by_powers_of_ten() {
        let axis = Axis::of_values(&[141.0, 90_000.0], 0.0, 300.0);

        assert_eq!(axis.ticks(), [100.0, 1000.0, 10_000.0, 100_000.0]);
        assert!((axis.place(1000.0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn steps_with_a_nothing_among_them_stand_one_after_the_other() {
        let kept = Steps::new(&[0.0, 100_000.0, 1_000_000.0], 0.0, 100.0);
        let backlog = Steps::new(&[10_000.0, 100_000.0, 1_000_000.0], 0.0, 100.0);

        assert_eq!(kept.place(100_000.0), Some(50.0));
        assert!((backlog.place(100_000.0).unwrap() - 50.0).abs() < 1e-9);
        assert_eq!(backlog.place(7.0), None);
    }
}
