//! A few shapes as SVG, in colours that follow the reader's light or dark page.

use std::fmt::Write as _;

/// Classes of shapes; the second palette is for dark pages.
const STYLE: &str = "\
text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-weight: 600; font-size: 14px }
.paper { fill: #ffffff } .grid { stroke: #d0d7de; stroke-width: 1 } .axis { stroke: #57606a; stroke-width: 1 }
.c0 { stroke: #0969da; fill: #0969da } .c1 { stroke: #9a6700; fill: #9a6700 } .c2 { fill: #8c959f }
.line { fill: none; stroke-width: 2 } .quiet { fill: #57606a } .span { stroke-width: 1.5 } .bar { stroke: none }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .paper { fill: #0d1117 } .grid { stroke: #30363d } .axis { stroke: #8b949e }
.c0 { stroke: #58a6ff; fill: #58a6ff } .c1 { stroke: #d29922; fill: #d29922 } .c2 { fill: #6e7681 }
.line { fill: none } .quiet { fill: #8b949e } .bar { stroke: none } }";

/// Where a text begins, relative to its place.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A picture under way.
#[derive(Debug)]
pub(super) struct Svg {
    width: f64,
    height: f64,
    body: String,
}

impl Svg {
    pub(super) const fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.push(&format!(
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        ));
    }

    pub(super) fn path(&mut self, class: &str, places: &[(f64, f64)]) {
        let places: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.push(&format!(r#"<polyline class="{class}" points="{}"/>"#, places.join(" ")));
    }

    pub(super) fn dot(&mut self, class: &str, (x, y): (f64, f64)) {
        self.push(&format!(r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="3.5"/>"#));
    }

    pub(super) fn bar(&mut self, class: &str, (x, y): (f64, f64), (width, height): (f64, f64)) {
        self.push(&format!(
            r#"<rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" rx="2"/>"#
        ));
    }

    pub(super) fn text(&mut self, class: &str, anchor: Anchor, (x, y): (f64, f64), text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = escaped(text);
        self.push(&format!(
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{text}</text>"#
        ));
    }

    /// The whole file; what the picture shows, in words, is for those who do not see it.
    pub(super) fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        let title = escaped(title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">\n<title>{title}</title>\n\
             <style>\n{STYLE}\n</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"6\"/>\n{body}</svg>\n"
        )
    }

    fn push(&mut self, shape: &str) {
        let _ = writeln!(self.body, "{shape}");
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
