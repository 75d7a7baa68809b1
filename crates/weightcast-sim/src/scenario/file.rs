//! A scenario file (JSON): a figure, the setting of its runs, and what was reported of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::ScenarioError;
use super::setting::Setting;

/// One figure, as a file says it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Where the reported values come from.
    pub figure: String,
    /// What the figure measures, and how.
    pub about: String,
    /// Assumptions where the source says nothing.
    #[serde(default)]
    pub assumptions: Vec<String>,
    /// The setting that all cases share; each case changes it.
    setting: Value,
    /// The runs, each a change of the setting.
    pub cases: Vec<Case>,
}

/// One run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The case's name.
    pub name: String,
    /// The case's changes, as a merge patch (RFC 7396) of the setting.
    #[serde(default)]
    change: Value,
    /// What the source reports.
    pub reported: Vec<Reported>,
    /// Arithmetic on other systems; nothing is played for it.
    #[serde(default)]
    pub formulas: Vec<StallFormula>,
}

/// A value to compare with.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reported {
    /// What is measured.
    pub measure: Measure,
    /// Only calls of this group count, if one is given.
    pub group: Option<String>,
    /// Only calls for this version count, if one is given.
    pub version: Option<u64>,
    /// The reported value; none if it stands in a plot only.
    pub value: Option<f64>,
    /// How the value is known.
    pub origin: Origin,
    /// Where the value is reported, or what it follows from.
    pub source: String,
}

/// How a reported value is known.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The text says it.
    Stated,
    /// It follows from what the text says.
    Derived,
    /// It can only be read off a plot.
    Plot,
    /// The value is not reported; the predicted one is shown for its own sake.
    Unreported,
}

/// What can be measured.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Total time that shards waited for weights, in seconds.
    TotalStallS,
    /// Mean wait.
    MeanStallS,
    /// Shortest wait.
    LeastStallS,
    /// Median wait.
    MedianStallS,
    /// Longest wait.
    LongestStallS,
    /// Time from the first ask to the end of the last wait.
    SpanS,
    /// GB that crossed between datacentres; of all groups.
    CrossedGb,
}

/// Plain arithmetic: `gpus * gb / gb_s` seconds of stall in total.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StallFormula {
    /// The system, and the assumptions.
    pub name: String,
    /// How many GPUs wait.
    pub gpus: f64,
    /// GB that each GPU waits for.
    pub gb: f64,
    /// Rate at which they come, in GB/s.
    pub gb_s: f64,
    /// The reported total, if there is one.
    pub reported_s: Option<f64>,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// Errors: `Syntax` if the text is not a scenario, `Setting` if one of its cases makes no
    /// sense.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        let scenario: Self = serde_json::from_str(text)
            .map_err(|error| ScenarioError::Syntax { reason: error.to_string() })?;
        for case in &scenario.cases {
            scenario.setting(case)?;
        }
        Ok(scenario)
    }

    /// The setting of a case: the shared setting, with the case's changes.
    ///
    /// Errors: `Setting` if the result makes no sense.
    pub fn setting(&self, case: &Case) -> Result<Setting, ScenarioError> {
        let mut value = self.setting.clone();
        if !case.change.is_null() {
            merge(&mut value, &case.change);
        }
        let wrong = |reason: String| ScenarioError::Setting { case: case.name.clone(), reason };
        let setting: Setting =
            serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
        setting.check().map_err(wrong)?;
        Ok(setting)
    }
}

/// Merges as RFC 7396 says: objects are merged, null removes a field, any other value replaces.
fn merge(target: &mut Value, change: &Value) {
    let Value::Object(changes) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Default::default());
    }
    let fields = target.as_object_mut().expect("made one");
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_merge_patches() {
        let mut value = serde_json::json!({"a": {"b": 1, "c": [1, 2]}, "d": 3});
        merge(&mut value, &serde_json::json!({"a": {"c": [7], "e": {"f": 1}}, "d": null}));
        assert_eq!(value, serde_json::json!({"a": {"b": 1, "c": [7], "e": {"f": 1}}}));
    }
}
