//! A picture as data: titles, axes, series. Nothing here knows a pixel; a file per kind of file that is drawn.

pub(super) mod control;
pub(super) mod demo;
pub(super) mod elastic;
pub(super) mod fanout;
pub(super) mod ray_loss;
pub(super) mod recording;
pub(super) mod scenario;
pub(super) mod transfer;

/// Names that one bar chart shows: more would make a picture of several screens.
const CATEGORIES: usize = 40;

/// What one SVG file shows: panels in rows, each row as wide as the picture.
#[derive(Debug)]
pub(crate) struct Picture {
    pub(crate) title: String,
    /// Lines below the title: the machine, the setting.
    pub(crate) notes: Vec<String>,
    pub(crate) rows: Vec<Vec<PicturePanel>>,
}

/// One chart with its title.
#[derive(Debug)]
pub(crate) struct PicturePanel {
    pub(crate) title: String,
    pub(crate) chart: Chart,
}

/// What a panel shows.
#[derive(Debug)]
pub(crate) enum Chart {
    Curves(CurveChart),
    Bars(BarChart),
    Timeline(Timeline),
}

/// Numbers over numbers.
#[derive(Debug)]
pub(crate) struct CurveChart {
    pub(crate) x: PlotAxis,
    pub(crate) y: PlotAxis,
    pub(crate) curves: Vec<Curve>,
    pub(crate) marks: Vec<Mark>,
}

/// A moment that all curves of a chart have in common.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Mark {
    pub(crate) x: f64,
    pub(crate) name: String,
}

/// What an axis counts, with its unit.
#[derive(Debug)]
pub(crate) struct PlotAxis {
    pub(crate) label: String,
    pub(crate) spacing: Spacing,
}

/// How values lie along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spacing {
    /// From zero to a round number.
    Linear,
    /// From zero to the last value.
    Fitted,
    /// By orders of magnitude; only positive values are shown.
    Logarithmic,
    /// As `Logarithmic`, with a tick at each value that occurs.
    Doubling,
}

/// One series of a curve chart.
#[derive(Debug)]
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A number for each of some names, in several series.
#[derive(Debug)]
pub(crate) struct BarChart {
    /// What the numbers count, with their unit.
    pub(crate) axis: String,
    pub(crate) categories: Vec<String>,
    pub(crate) series: Vec<BarSeries>,
}

/// One series of a bar chart.
#[derive(Debug)]
pub(crate) struct BarSeries {
    pub(crate) name: String,
    pub(crate) ink: Ink,
    /// By category; `None` where there is nothing to show.
    pub(crate) bars: Vec<Option<Bar>>,
}

/// One number, and what is written behind it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Bar {
    pub(crate) value: f64,
    pub(crate) remark: String,
}

/// Which worker held which version, over seconds.
#[derive(Debug)]
pub(crate) struct Timeline {
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    pub(crate) tracks: Vec<Track>,
}

/// One worker.
#[derive(Debug)]
pub(crate) struct Track {
    pub(crate) name: String,
    pub(crate) periods: Vec<Period>,
}

/// A time in which a worker held a version.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Period {
    pub(crate) version: u64,
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
}

/// A colour by its meaning: what weightcast did, what it is compared with, what cannot be surpassed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Weightcast,
    Compared,
    Limit,
    /// One of several of a kind.
    Other(usize),
}

impl Picture {
    /// Panels that would show nothing are left out: not every run measures everything.
    fn new(title: &str, notes: Vec<String>, mut rows: Vec<Vec<PicturePanel>>) -> Self {
        rows.iter_mut().for_each(|row| row.retain(PicturePanel::shows_something));
        rows.retain(|row| !row.is_empty());
        Self { title: title.to_owned(), notes, rows }
    }
}

impl PicturePanel {
    fn shows_something(&self) -> bool {
        match &self.chart {
            Chart::Curves(chart) => !chart.curves.is_empty(),
            Chart::Bars(chart) => !chart.series.is_empty(),
            Chart::Timeline(timeline) => timeline.tracks.iter().any(|t| !t.periods.is_empty()),
        }
    }

    fn curves(
        title: impl Into<String>,
        x: PlotAxis,
        y: PlotAxis,
        curves: impl IntoIterator<Item = Curve>,
    ) -> Self {
        // A series that was not measured has no place in a legend.
        let curves = curves.into_iter().filter(|curve| !curve.points.is_empty()).collect();
        let chart = CurveChart { x, y, curves, marks: Vec::new() };
        Self { title: title.into(), chart: Chart::Curves(chart) }
    }

    /// The same panel with marks.
    fn marked(mut self, marks: Vec<Mark>) -> Self {
        if let Chart::Curves(chart) = &mut self.chart {
            chart.marks = marks;
        }
        self
    }

    /// Of too many categories the first are shown, and the title says so.
    fn bars(title: impl Into<String>, mut chart: BarChart) -> Self {
        let (mut title, all) = (title.into(), chart.categories.len());
        if all > CATEGORIES {
            title += &format!(" (the first {CATEGORIES} of {all})");
            chart.categories.truncate(CATEGORIES);
            chart.series.iter_mut().for_each(|series| series.bars.truncate(CATEGORIES));
        }
        Self { title, chart: Chart::Bars(chart) }
    }
}

impl PlotAxis {
    fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), spacing: Spacing::Linear }
    }

    fn fitted(label: impl Into<String>) -> Self {
        Self { label: label.into(), spacing: Spacing::Fitted }
    }

    fn logarithmic(label: impl Into<String>) -> Self {
        Self { label: label.into(), spacing: Spacing::Logarithmic }
    }

    fn doubling(label: impl Into<String>) -> Self {
        Self { label: label.into(), spacing: Spacing::Doubling }
    }
}

impl Curve {
    fn new(name: impl Into<String>, ink: Ink, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), ink, points }
    }
}

impl BarChart {
    fn new(
        axis: impl Into<String>,
        categories: Vec<String>,
        series: impl IntoIterator<Item = BarSeries>,
    ) -> Self {
        let shown = |series: &BarSeries| series.bars.iter().any(Option::is_some);
        let series = series.into_iter().filter(shown).collect();
        Self { axis: axis.into(), categories, series }
    }
}

impl BarSeries {
    /// A series without remarks.
    fn new(
        name: impl Into<String>,
        ink: Ink,
        values: impl IntoIterator<Item = Option<f64>>,
    ) -> Self {
        let bar = |value| Bar { value, remark: String::new() };
        let bars = values.into_iter().map(|value: Option<f64>| value.map(bar)).collect();
        Self { name: name.into(), ink, bars }
    }
}

#[cfg(test)]
mod tests;
