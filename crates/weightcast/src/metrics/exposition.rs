//! Prometheus' text format 0.0.4: every scraper reads it, and `promtool check metrics` checks it. The
//! samples of one name are a family.

use std::fmt::Write;

use weightcast_protocol::{DurationHistogram, Span};

/// The content type of the text.
pub(crate) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The type of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FamilyKind {
    /// Only grows, until the process ends. Its name ends with `_total`.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts durations by their length.
    Histogram,
}

/// Names and values of labels, which tell the samples of a family apart.
pub(crate) type Labels<'a> = &'a [(&'static str, &'a str)];

/// The text, while it is written.
#[derive(Default)]
pub(crate) struct Exposition(String);

/// One family, while its samples are written.
pub(crate) struct FamilyText<'a> {
    text: &'a mut String,
    name: &'a str,
}

impl Exposition {
    /// Begins a family; its samples follow. Neither name nor meaning may need escaping.
    pub(crate) fn family<'a>(
        &'a mut self,
        name: &'a str,
        kind: FamilyKind,
        meaning: &str,
    ) -> FamilyText<'a> {
        let kind = match kind {
            FamilyKind::Counter => "counter",
            FamilyKind::Gauge => "gauge",
            FamilyKind::Histogram => "histogram",
        };
        let text = &mut self.0;
        let _ = write!(text, "# HELP {name} {meaning}\n# TYPE {name} {kind}\n");
        FamilyText { text, name }
    }

    /// A family of one sample, without labels.
    pub(crate) fn one(&mut self, name: &str, kind: FamilyKind, meaning: &str, value: f64) {
        self.family(name, kind, meaning).sample(&[], value);
    }

    pub(crate) fn into_text(self) -> String {
        self.0
    }
}

impl FamilyText<'_> {
    pub(crate) fn sample(&mut self, labels: Labels<'_>, value: f64) {
        self.line("", labels, value);
    }

    pub(crate) fn histogram(&mut self, labels: Labels<'_>, durations: &DurationHistogram) {
        let count = durations.count() as f64;
        let bounded =
            durations.buckets().map(|(bound, below)| (seconds(bound).to_string(), below as f64));
        for (bound, below) in bounded.chain([("+Inf".to_owned(), count)]) {
            self.line("_bucket", &[labels, &[("le", &bound)]].concat(), below);
        }
        self.line("_sum", labels, seconds(durations.sum()));
        self.line("_count", labels, count);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, value: f64) {
        let (text, name) = (&mut *self.text, self.name);
        let _ = write!(text, "{name}{suffix}");
        for (at, (label, of)) in labels.iter().enumerate() {
            let _ = write!(text, "{}{label}=\"", if at == 0 { '{' } else { ',' });
            escape(text, of);
            text.push('"');
        }
        let _ = writeln!(text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

/// Users choose the names of models: a name must not end its line or its label.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
}

pub(crate) fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}

#[cfg(test)]
pub(crate) mod tests;
