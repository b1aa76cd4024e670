//! Panels side by side, with a line for each of those that are compared.

use super::axis::{Axis, Steps, short};
use super::svg::{Anchor, Svg};

const WIDTH: f64 = 820.0;
const HEIGHT: f64 = 300.0;
/// Room around the panels: above for the title and the legend, below for what grows.
const TOP: f64 = 74.0;
const BOTTOM: f64 = 46.0;
const LEFT: f64 = 56.0;
const RIGHT: f64 = 24.0;
const COLOURS: [&str; 2] = ["c0", "c1"];

/// A picture of several panels above the same words.
pub(super) struct Lines<'a> {
    pub(super) title: &'a str,
    /// What grows.
    pub(super) words: &'a str,
    pub(super) panels: &'a [Panel],
}

pub(super) struct Panel {
    pub(super) title: &'static str,
    pub(super) series: Vec<Series>,
}

#[derive(Clone)]
pub(super) struct Series {
    pub(super) name: &'static str,
    pub(super) spots: Vec<Spot>,
}

/// A value, and the least and the most of its rounds.
#[derive(Clone, Copy)]
pub(super) struct Spot {
    pub(super) at: f64,
    pub(super) value: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Lines<'_> {
    pub(super) fn draw(&self) -> String {
        let mut svg = Svg::new(WIDTH, HEIGHT);
        svg.text("title", Anchor::Start, (16.0, 26.0), self.title);
        let width = WIDTH / self.panels.len() as f64;
        self.legend(&mut svg, width);
        for (place, panel) in self.panels.iter().enumerate() {
            let left = width * place as f64;
            panel.draw(&mut svg, (left + LEFT, left + width - RIGHT), self.words);
        }
        svg.finish(self.title)
    }

    /// Names the lines once, or above each panel where they are not the same.
    fn legend(&self, svg: &mut Svg, width: f64) {
        let is_new =
            |place: usize| place == 0 || self.panels[place].names() != self.panels[0].names();
        let mut left = 0.0;
        for place in (0..self.panels.len()).filter(|place| is_new(*place)) {
            left = 16.0 + width * place as f64;
            for (series, colour) in self.panels[place].series.iter().zip(COLOURS) {
                svg.dot(colour, (left + 4.0, 44.0));
                svg.text("", Anchor::Start, (left + 14.0, 48.0), series.name);
                left += 34.0 + 6.6 * series.name.len() as f64;
            }
        }
        svg.text("quiet", Anchor::Start, (left, 48.0), "bars: least and most of the rounds");
    }
}

impl Panel {
    fn names(&self) -> Vec<&'static str> {
        self.series.iter().map(|series| series.name).collect()
    }

    fn draw(&self, svg: &mut Svg, (left, right): (f64, f64), words: &str) {
        let (top, bottom) = (TOP + 8.0, HEIGHT - BOTTOM);
        let spots: Vec<Spot> = self.series.iter().flat_map(|series| series.spots.clone()).collect();
        if spots.is_empty() {
            return;
        }
        let values: Vec<f64> = spots.iter().flat_map(|spot| [spot.least, spot.most]).collect();
        let height = Axis::of_values(&values, bottom, top);
        let at: Vec<f64> = spots.iter().map(|spot| spot.at).collect();
        let steps = Steps::new(&at, left + 16.0, right - 16.0);
        svg.text("", Anchor::Start, (left - LEFT + 16.0, TOP - 6.0), self.title);
        for tick in height.ticks() {
            let y = height.place(tick);
            svg.line("grid", (left, y), (right, y));
            svg.text("quiet", Anchor::End, (left - 8.0, y + 4.0), &short(tick));
        }
        svg.line("axis", (left, bottom), (right, bottom));
        for (number, x) in steps.all() {
            svg.line("axis", (*x, bottom), (*x, bottom + 4.0));
            svg.text("quiet", Anchor::Middle, (*x, bottom + 18.0), &short(*number));
        }
        let middle = f64::midpoint(left, right);
        svg.text("", Anchor::Middle, (middle, HEIGHT - 10.0), words);
        for (series, colour) in self.series.iter().zip(COLOURS) {
            series.draw(svg, &steps, &height, colour);
        }
    }
}

impl Series {
    fn draw(&self, svg: &mut Svg, steps: &Steps, height: &Axis, colour: &str) {
        let place = |spot: &Spot| Some((steps.place(spot.at)?, height.place(spot.value)));
        let places: Vec<(f64, f64)> = self.spots.iter().filter_map(place).collect();
        svg.path(&format!("{colour} line"), &places);
        for (spot, (x, y)) in self.spots.iter().zip(&places) {
            if spot.most > spot.least {
                let ends = ((*x, height.place(spot.least)), (*x, height.place(spot.most)));
                svg.line(&format!("{colour} span"), ends.0, ends.1);
            }
            svg.dot(colour, (*x, *y));
        }
    }
}
