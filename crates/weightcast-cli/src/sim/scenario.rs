//! `weightcast sim --scenario`: plays a scenario file, prints predicted beside reported.

use std::fmt::Write;
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use serde::Serialize;
use weightcast_sim::scenario::{CaseComparison, ComparedValue, Origin, Scenario};

/// What is printed as JSON.
#[derive(Serialize)]
struct ScenarioReport<'a> {
    version: &'static str,
    figure: &'a str,
    about: &'a str,
    assumptions: &'a [String],
    cases: Vec<CaseComparison>,
    wall_seconds: f64,
}

pub(crate) fn run(file: &Path, json: bool) -> anyhow::Result<()> {
    let text =
        std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let scenario = Scenario::parse(&text).with_context(|| file.display().to_string())?;
    let started = Instant::now();
    if !json {
        println!("{}\n{}", scenario.figure, scenario.about);
    }
    let mut cases = Vec::new();
    for case in &scenario.cases {
        let comparison = scenario.compare(case)?;
        if !json {
            print!("\n{}", table(&comparison));
        }
        cases.push(comparison);
    }
    if json {
        let report = ScenarioReport {
            version: env!("CARGO_PKG_VERSION"),
            figure: &scenario.figure,
            about: &scenario.about,
            assumptions: &scenario.assumptions,
            cases,
            wall_seconds: started.elapsed().as_secs_f64(),
        };
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else if !scenario.assumptions.is_empty() {
        println!("\nassumed: {}", scenario.assumptions.join("\n         "));
    }
    Ok(())
}

fn table(comparison: &CaseComparison) -> String {
    let outcome = &comparison.outcome;
    let mut text = format!(
        "{}\n  {:<54}{:>10}{:>10}{:>7}  reported is\n",
        comparison.case, "", "predicted", "reported", "ratio"
    );
    for row in &comparison.rows {
        let _ = writeln!(
            text,
            "  {:<54}{:>10}{:>10}{:>7}  {}",
            row.what,
            number(row.predicted, 3),
            number(row.reported, 3),
            number(row.ratio, 2),
            origin(row)
        );
    }
    if let Some(busiest) = outcome.links.iter().max_by(|a, b| a.gb.total_cmp(&b.gb)) {
        let _ = writeln!(text, "  busiest link: {}, {:.1} GB", busiest.name, busiest.gb);
    }
    let counters = &outcome.counters;
    let _ = writeln!(
        text,
        "  {} assignments ({} of relays, {} resumed, {} crossed), {} skips, {} events",
        counters.assignments,
        counters.relays,
        counters.resumes,
        counters.crossings,
        counters.skips,
        outcome.events
    );
    for (failure, count) in &outcome.failures {
        let _ = writeln!(text, "  {count} times: {failure}");
    }
    text
}

fn number(number: Option<f64>, digits: usize) -> String {
    number.map_or("-".to_owned(), |number| match number.abs() {
        100.0.. => format!("{number:.0}"),
        10.0.. => format!("{number:.1}"),
        _ => format!("{number:.digits$}"),
    })
}

fn origin(row: &ComparedValue) -> String {
    let how = match row.origin {
        Origin::Stated => "stated",
        Origin::Derived => "derived",
        Origin::Plot => "in a plot only",
        Origin::Unreported => "not reported",
    };
    let how = if row.formula { format!("a formula; {how}") } else { how.to_owned() };
    format!("{how}: {}", row.source)
}

#[cfg(test)]
mod tests {
    use weightcast_sim::scenario::{LinkBytes, Outcome};

    use super::*;

    /// Each number stands below its own name; of the links the busiest is named.
    #[test]
    fn a_case_is_told_line_by_line() {
        let row = |what: &str, numbers: [Option<f64>; 3]| {
            let [predicted, reported, ratio] = numbers;
            let (what, source) = (what.to_owned(), "p. 3".to_owned());
            ComparedValue {
                what,
                predicted,
                reported,
                ratio,
                origin: Origin::Stated,
                source,
                formula: false,
            }
        };
        let link = |name: &str, gb| LinkBytes { name: name.to_owned(), gb };
        let mut outcome = Outcome { events: 99, ..Outcome::default() };
        outcome.links = vec![link("a", 1.0), link("b", 20.0), link("c", 3.0)];
        outcome.failures = [("cut".to_owned(), 1), ("late".to_owned(), 2)].into();
        let counters = &mut outcome.counters;
        (counters.assignments, counters.relays, counters.resumes) = (9, 8, 7);
        (counters.crossings, counters.skips) = (6, 5);
        let rows = vec![
            row("stall", [Some(1.5), Some(3.0), Some(0.5)]),
            row("rate", [Some(20.0), None, None]),
        ];
        let text = table(&CaseComparison { case: "burst".to_owned(), rows, outcome });
        let squeezed = |line: &str| line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        let expected = [
            "burst",
            "predicted reported ratio reported is",
            "stall 1.500 3.000 0.50 stated: p. 3",
            "rate 20.0 - - stated: p. 3",
            "busiest link: b, 20.0 GB",
            "9 assignments (8 of relays, 7 resumed, 6 crossed), 5 skips, 99 events",
            "1 times: cut",
            "2 times: late",
        ];
        assert_eq!(text.lines().map(squeezed).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn numbers_have_three_digits_or_so() {
        for (value, digits, said) in [
            (None, 3, "-"),
            (Some(0.0), 3, "0.000"),
            (Some(9.876_54), 3, "9.877"),
            (Some(9.876_54), 2, "9.88"),
            (Some(10.0), 3, "10.0"),
            (Some(-10.0), 3, "-10.0"),
            (Some(98.76), 2, "98.8"),
            (Some(100.0), 3, "100"),
            (Some(-1_234.5), 3, "-1234"),
        ] {
            assert_eq!(number(value, digits), said);
        }
    }

    #[test]
    fn a_row_says_how_its_value_is_known() {
        for (known, said) in [
            (Origin::Stated, "stated"),
            (Origin::Derived, "derived"),
            (Origin::Plot, "in a plot only"),
            (Origin::Unreported, "not reported"),
        ] {
            for formula in [false, true] {
                let row = ComparedValue {
                    what: String::new(),
                    predicted: None,
                    reported: None,
                    ratio: None,
                    origin: known,
                    source: "p. 3".to_owned(),
                    formula,
                };
                let prefix = if formula { "a formula; " } else { "" };
                assert_eq!(origin(&row), format!("{prefix}{said}: p. 3"));
            }
        }
    }
}
