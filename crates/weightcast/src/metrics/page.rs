//! The page that lists all metrics, held against what is told.

use std::collections::BTreeSet;

use super::exposition::tests::read;

const PAGE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guides/metrics.md"));

/// The rows of the page's tables whose first cell, a name, begins so.
fn rows(prefix: &str) -> Vec<Vec<&'static str>> {
    let rows = PAGE.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
    let rows = rows.map(|row| row.split(" | ").map(str::trim).collect::<Vec<_>>());
    rows.filter(|row| row[0].trim_matches('`').starts_with(prefix)).collect()
}

/// Holds the rows of figures against their keys and meanings.
pub(crate) fn lists_figures(figures: &[(String, &str)]) {
    let figures = figures.iter().map(|(key, meaning)| (format!("`{key}`"), *meaning));
    let rows = rows("weightcast/").into_iter().filter(|row| !row[0].contains("/update/"));
    let told: Vec<_> = rows.map(|row| (row[0].to_owned(), row[2])).collect();
    assert_eq!(told, figures.collect::<Vec<_>>());
}

/// Holds the rows of metrics against a text in which each family has a sample.
pub(crate) fn lists_metrics(text: &str, is_ours: impl Fn(&str) -> bool) {
    let families = read(text);
    let mut known = BTreeSet::new();
    for row in rows("weightcast_") {
        let [name, kind, labels, unit, meaning] = row[..] else { panic!("{row:?}") };
        let name = name.trim_matches('`');
        if !is_ours(name) {
            continue;
        }
        assert!(known.insert(name), "{name} is listed twice");
        let family = families.get(name).unwrap_or_else(|| panic!("{name} is not told"));
        let told: BTreeSet<String> = labels
            .split(", ")
            .filter(|label| !label.is_empty())
            .map(|label| label.trim_matches('`').to_owned())
            .collect();
        assert_eq!((kind, meaning), (family.kind.as_str(), family.meaning.as_str()), "{name}");
        assert_eq!(told, family.labels(), "{name}");
        let base = ["seconds", "bytes"].into_iter().find(|base| name.contains(base));
        assert!(base.map_or(!unit.is_empty(), |base| unit == base), "{name}: {unit}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
    }
    let missing: Vec<_> = families.keys().filter(|name| !known.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "the page does not list {missing:?}");
    assert!(families.values().all(|family| !family.samples.is_empty()), "each has a sample");
}
