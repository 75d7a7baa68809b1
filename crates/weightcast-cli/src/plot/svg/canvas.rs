//! The elements that pictures are made of, as text of an SVG file.

use std::fmt::Write;

use super::lettering::{Anchor, Lettering, escaped};

/// A place on the picture, in pixels from its upper left corner.
pub(super) type Spot = (f64, f64);

/// A rectangle of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Area {
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// What is left of the area below its first pixels.
    pub(super) fn below(self, pixels: f64) -> Self {
        Self { y: self.y + pixels, height: self.height - pixels, ..self }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pen {
    pub(super) colour: &'static str,
    pub(super) width: f64,
    pub(super) dashed: bool,
}

impl Pen {
    pub(super) const fn thin(colour: &'static str) -> Self {
        Self { colour, width: 1.0, dashed: false }
    }

    fn attributes(self) -> String {
        let dashes = if self.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        format!("stroke=\"{}\" stroke-width=\"{}\"{dashes}", self.colour, self.width)
    }
}

/// An SVG file that grows. A `tip` is what a viewer shows where the mouse rests.
#[derive(Default)]
pub(super) struct Canvas {
    body: String,
}

impl Canvas {
    pub(super) fn line(&mut self, from: Spot, to: Spot, pen: Pen) {
        let ((x1, y1), (x2, y2)) = (from, to);
        let pen = pen.attributes();
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" {pen}/>"
        );
    }

    pub(super) fn polyline(&mut self, spots: &[Spot], pen: Pen, tip: &str) {
        let spots: Vec<String> = spots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let (spots, pen) = (spots.join(" "), pen.attributes());
        let shape = format!("polyline points=\"{spots}\" fill=\"none\" {pen}");
        self.tipped(&shape, tip);
    }

    pub(super) fn rectangle(&mut self, area: Area, fill: &str, tip: &str) {
        let Area { x, y, width, height } = area;
        let shape = format!(
            "rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{fill}\""
        );
        self.tipped(&shape, tip);
    }

    pub(super) fn circle(&mut self, centre: Spot, fill: &str, tip: &str) {
        let (x, y) = centre;
        self.tipped(&format!("circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{fill}\""), tip);
    }

    /// Writes text whose baseline is at a spot.
    pub(super) fn text(&mut self, at: Spot, text: &str, lettering: Lettering) {
        let Lettering { size, bold, colour, anchor } = lettering;
        let weight = if bold { " font-weight=\"bold\"" } else { "" };
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let ((x, y), text) = (at, escaped(text));
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" fill=\"{colour}\"{weight}{anchor}>{text}</text>"
        );
    }

    /// The whole file.
    pub(super) fn finish(self, width: f64, height: f64, title: &str) -> String {
        let (body, title) = (self.body, escaped(title));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" \
             font-family=\"Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif\">\n\
             <title>{title}</title>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{body}</svg>\n"
        )
    }

    fn tipped(&mut self, shape: &str, tip: &str) {
        let name = shape.split(' ').next().unwrap_or_default();
        let _ = match tip {
            "" => writeln!(self.body, "<{shape}/>"),
            tip => writeln!(self.body, "<{shape}><title>{}</title></{name}>", escaped(tip)),
        };
    }
}
