//! Bars one below the other, by powers of ten.

use super::axis::{Axis, short};
use super::svg::{Anchor, Svg};
use crate::bench::report::cell::with_spaces;

const WIDTH: f64 = 820.0;
/// Room for the names.
const LEFT: f64 = 250.0;
/// Room for the numbers at the ends of the bars.
const RIGHT: f64 = 150.0;
const TOP: f64 = 44.0;
const ROW: f64 = 26.0;

pub(super) struct Bars<'a> {
    pub(super) title: &'a str,
    /// What the scale is of.
    pub(super) words: &'a str,
    pub(super) bars: &'a [Bar],
}

pub(super) struct Bar {
    pub(super) name: String,
    pub(super) value: f64,
    pub(super) is_ours: bool,
    /// How many times as fast ours is.
    pub(super) times: Option<f64>,
}

impl Bars<'_> {
    pub(super) fn draw(&self) -> String {
        let bottom = TOP + ROW * self.bars.len() as f64;
        let mut svg = Svg::new(WIDTH, bottom + 50.0);
        svg.text("title", Anchor::Start, (16.0, 26.0), self.title);
        let values: Vec<f64> = self.bars.iter().map(|bar| bar.value).collect();
        let axis = Axis::logarithmic(&values, LEFT, WIDTH - RIGHT);
        for tick in axis.ticks() {
            let x = axis.place(tick);
            svg.line("grid", (x, TOP), (x, bottom + 4.0));
            svg.text("quiet", Anchor::Middle, (x, bottom + 18.0), &short(tick));
        }
        for (place, bar) in self.bars.iter().enumerate() {
            bar.draw(&mut svg, TOP + ROW * place as f64, &axis);
        }
        let middle = f64::midpoint(LEFT, WIDTH - RIGHT);
        svg.text("", Anchor::Middle, (middle, bottom + 38.0), self.words);
        svg.finish(self.title)
    }
}

impl Bar {
    fn draw(&self, svg: &mut Svg, y: f64, axis: &Axis) {
        let end = axis.place(self.value);
        let class = if self.is_ours { "c0 bar" } else { "c2 bar" };
        svg.text("", Anchor::End, (LEFT - 10.0, y + 17.0), &self.name);
        svg.bar(class, (LEFT, y + 5.0), (end - LEFT, ROW - 9.0));
        let number = with_spaces(&format!("{:.0}", self.value));
        let times = self.times.map(|times| format!(" (ours × {})", rounded(times)));
        let number = number + &times.unwrap_or_default();
        svg.text("quiet", Anchor::Start, (end + 8.0, y + 17.0), &number);
    }
}

/// Two digits that count.
fn rounded(times: f64) -> String {
    if times < 10.0 { format!("{times:.1}") } else { with_spaces(&format!("{times:.0}")) }
}
