//! Predicted values beside reported ones.

use std::fmt;

use serde::Serialize;

use super::check::ScenarioError;
use super::file::{Case, Measure, Origin, Scenario};
use super::outcome::Outcome;
use super::play;

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct CaseComparison {
    /// The case's name.
    pub case: String,
    /// Reported and predicted values.
    pub rows: Vec<ComparedValue>,
    /// What was played.
    pub outcome: Outcome,
}

/// One value.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedValue {
    /// What is compared.
    pub what: String,
    /// The value that was played, or calculated.
    pub predicted: Option<f64>,
    /// The reported value, if there is one.
    pub reported: Option<f64>,
    /// Predicted divided by reported.
    pub ratio: Option<f64>,
    /// How the reported value is known.
    pub origin: Origin,
    /// Where the value is reported.
    pub source: String,
    /// The value is arithmetic: nothing was played for it.
    pub formula: bool,
}

impl Scenario {
    /// Plays a case and compares.
    ///
    /// Errors: `Unfinished` if a call of the script never ends.
    pub fn compare(&self, case: &Case) -> Result<CaseComparison, ScenarioError> {
        let outcome = play(&case.name, &self.setting(case)?)?;
        let played = case.reported.iter().map(|reported| {
            let (group, version) = (reported.group.as_deref(), reported.version);
            let predicted = outcome.measure(reported.measure, group, version);
            let of = group.map_or(String::new(), |group| format!(" of {group}"));
            let at = version.map_or(String::new(), |version| format!(", version {version}"));
            let what = format!("{}{of}{at}", reported.measure);
            ComparedValue::new(
                what,
                predicted,
                reported.value,
                reported.origin,
                &reported.source,
                false,
            )
        });
        let calculated = case.formulas.iter().map(|formula| {
            let predicted = Some(formula.gpus * formula.gb / formula.gb_s);
            let origin = formula.reported_s.map_or(Origin::Unreported, |_| Origin::Derived);
            let name = format!("total stall (s), {}", formula.name);
            let source =
                format!("{} GPUs, {} GB at {} GB/s", formula.gpus, formula.gb, formula.gb_s);
            ComparedValue::new(name, predicted, formula.reported_s, origin, &source, true)
        });
        let rows = played.chain(calculated).collect();
        Ok(CaseComparison { case: case.name.clone(), rows, outcome })
    }
}

impl ComparedValue {
    fn new(
        what: String,
        predicted: Option<f64>,
        reported: Option<f64>,
        origin: Origin,
        source: &str,
        formula: bool,
    ) -> Self {
        let ratio = predicted.zip(reported).map(|(predicted, reported)| predicted / reported);
        Self { what, predicted, reported, ratio, origin, source: source.to_owned(), formula }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TotalStallS => "total stall (s)",
            Self::MeanStallS => "mean stall (s)",
            Self::LeastStallS => "least stall (s)",
            Self::MedianStallS => "median stall (s)",
            Self::LongestStallS => "longest stall (s)",
            Self::SpanS => "first ask to last end (s)",
            Self::CrossedGb => "crossed (GB)",
        })
    }
}
