//! What is printed of mutants. The words of the JSON are fixed: other programs read them.

use std::fmt;
use std::ops::Range;

use serde::Serialize;
use weightcast_mutants::PlayedMutant;
use weightcast_sim::Catch;

/// What came of a mutant.
#[derive(Serialize)]
pub(crate) struct CatchReport {
    pub(crate) mutant: &'static str,
    pub(crate) caught: bool,
    seed: Option<u64>,
    invariant: Option<String>,
    step: Option<u64>,
    detail: Option<String>,
    /// Worlds played up to that one.
    worlds: u64,
}

impl CatchReport {
    pub(crate) fn of(mutant: &PlayedMutant, seeds: Range<u64>, catch: Option<Catch>) -> Self {
        let last = catch.as_ref().map_or(seeds.end, |catch| catch.seed + 1);
        Self {
            mutant: mutant.name(),
            caught: catch.is_some(),
            seed: catch.as_ref().map(|catch| catch.seed),
            invariant: catch.as_ref().map(|catch| catch.violation.invariant.clone()),
            step: catch.as_ref().map(|catch| catch.violation.step),
            detail: catch.map(|catch| catch.violation.detail),
            worlds: last - seeds.start,
        }
    }

    /// One object, or a list.
    pub(crate) fn json(reports: &[CatchReport], one: bool) -> String {
        let text = match reports {
            [report] if one => serde_json::to_string_pretty(report),
            reports => serde_json::to_string_pretty(reports),
        };
        text.expect("plain fields always serialise") + "\n"
    }
}

impl fmt::Display for CatchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mutant, worlds, .. } = self;
        match (&self.invariant, self.seed, self.step, &self.detail) {
            (Some(invariant), Some(seed), Some(step), Some(detail)) => write!(
                f,
                "caught      {mutant:<40} {invariant:<4} seed {seed}, step {step}, worlds \
                 {worlds}: {detail}"
            ),
            _ => write!(f, "NOT CAUGHT  {mutant:<40} worlds {worlds}"),
        }
    }
}

/// The mutants, for people.
pub(crate) fn mutants_table() -> String {
    let lines = PlayedMutant::all().map(|mutant| {
        let found_by = mutant.found_by().join(" or ");
        format!("{:<40} {found_by:<10} {}\n", mutant.name(), mutant.what())
    });
    lines.collect()
}

/// The mutants, for programs.
pub(crate) fn mutants_json() -> String {
    #[derive(Serialize)]
    struct MutantRow {
        name: &'static str,
        what: &'static str,
        found_by: &'static [&'static str],
    }
    let row =
        |m: PlayedMutant| MutantRow { name: m.name(), what: m.what(), found_by: m.found_by() };
    let rows: Vec<MutantRow> = PlayedMutant::all().map(row).collect();
    serde_json::to_string_pretty(&rows).expect("plain fields always serialise") + "\n"
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::Time;
    use weightcast_sim::InvariantViolation;

    use super::*;

    fn first() -> PlayedMutant {
        PlayedMutant::all().next().expect("there are mutants")
    }

    fn caught(seed: u64) -> Option<Catch> {
        let (invariant, detail) = ("S1".to_owned(), "torn".to_owned());
        Some(Catch {
            seed,
            violation: InvariantViolation { invariant, step: 7, at: Time(0), detail },
        })
    }

    /// The worlds up to the one that shows it, that one too; else all.
    #[test]
    fn worlds_are_counted_from_the_first_seed() {
        let mutant = &first();
        for (seeds, seed, worlds) in [
            (0..200, Some(0), 1),
            (0..200, Some(199), 200),
            (40..50, Some(40), 1),
            (40..50, Some(44), 5),
            (40..50, None, 10),
        ] {
            let report = CatchReport::of(mutant, seeds, seed.and_then(caught));
            assert_eq!((report.worlds, report.seed, report.caught), (worlds, seed, seed.is_some()));
            let told = report.to_string();
            let counted = format!("worlds {worlds}");
            assert!(told.contains(mutant.name()) && told.contains(&counted), "{told}");
            assert_eq!(told.starts_with("NOT CAUGHT"), seed.is_none(), "{told}");
            if let Some(seed) = seed {
                assert!(told.contains(&format!("S1   seed {seed}, step 7, ")), "{told}");
                assert!(told.ends_with(": torn"), "{told}");
            }
        }
    }

    #[test]
    fn mutants_are_listed_as_they_are() {
        let listed: serde_json::Value = serde_json::from_str(&mutants_json()).unwrap();
        let table = mutants_table();
        let mut lines = table.lines();
        for (number, mutant) in PlayedMutant::all().enumerate() {
            let entry = &listed[number];
            assert_eq!(
                (&entry["name"], &entry["what"]),
                (&mutant.name().into(), &mutant.what().into())
            );
            assert_eq!(entry["found_by"], serde_json::json!(mutant.found_by()));
            let line = lines.next().expect("a line");
            assert!(line.starts_with(mutant.name()) && line.ends_with(mutant.what()), "{line}");
            assert!(line.contains(&mutant.found_by().join(" or ")), "{line}");
        }
        assert_eq!(
            (lines.next(), listed.as_array().map(Vec::len)),
            (None, Some(PlayedMutant::all().count()))
        );
    }

    #[test]
    fn one_mutant_is_an_object_and_several_are_a_list() {
        let of = |count: u64| -> Vec<CatchReport> {
            (0..count).map(|seed| CatchReport::of(&first(), 0..9, caught(seed))).collect()
        };
        for (count, one, list) in
            [(1, true, false), (1, false, true), (2, false, true), (0, false, true)]
        {
            let text = CatchReport::json(&of(count), one);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            assert_eq!(value.is_array(), list, "{count} {one}");
            assert!(text.ends_with('\n'));
        }
    }
}
