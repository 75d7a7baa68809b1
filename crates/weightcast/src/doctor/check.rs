//! One line of what the doctor says.

use serde::Serialize;

/// What was found of one thing, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Which check it is: the same in every release.
    pub id: &'static str,
    /// Which one of several things it is about: a server of the list, a variable.
    pub of: Option<String>,
    /// Whether that is good.
    pub verdict: CheckVerdict,
    /// What was found.
    pub found: String,
    /// What to do next, if it is not good.
    pub advice: Option<String>,
}

/// Whether what was found is good, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum CheckVerdict {
    /// There is nothing here to be good or bad, or it cannot be known.
    #[serde(rename = "not applicable")]
    NotApplicable,
    /// As it should be.
    #[serde(rename = "ok")]
    Ok,
    /// It works, but not as well or as surely as it could.
    #[serde(rename = "warning")]
    Warning,
    /// The job does not work like this.
    #[serde(rename = "problem")]
    Problem,
}

impl CheckVerdict {
    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotApplicable => "not applicable",
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Problem => "problem",
        }
    }
}

impl Check {
    pub(super) fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, of: None, verdict: CheckVerdict::Ok, found: found.into(), advice: None }
    }

    pub(super) fn not_applicable(id: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: CheckVerdict::NotApplicable, ..Self::ok(id, found) }
    }

    pub(super) fn warning(
        id: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        let advice = Some(advice.into());
        Self { verdict: CheckVerdict::Warning, advice, ..Self::ok(id, found) }
    }

    pub(super) fn problem(
        id: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: CheckVerdict::Problem, ..Self::warning(id, found, advice) }
    }

    pub(super) fn of(self, of: impl Into<String>) -> Self {
        Self { of: Some(of.into()), ..self }
    }
}

/// A check as a table of a test writes it: id, verdict, and words that are found in what it says.
#[cfg(test)]
#[track_caller]
pub(super) fn assert_check(check: &Check, id: &str, verdict: CheckVerdict, words: &[&str]) {
    assert_eq!((check.id, check.verdict), (id, verdict), "{check:?}");
    let wants_advice = verdict >= CheckVerdict::Warning;
    assert_eq!(check.advice.is_some(), wants_advice, "{check:?}");
    let said = format!("{} {}", check.found, check.advice.as_deref().unwrap_or_default());
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}
