//! `docs/invariants.md` and the table of mutants name the same.

use std::path::Path;

use weightcast_mutants::PlayedMutant;

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/invariants.md");
    std::fs::read_to_string(path).unwrap()
}

/// Cells of the rows of a chapter's table.
fn rows(page: &str, chapter: &str) -> Vec<Vec<String>> {
    let start = page.find(chapter).unwrap() + chapter.len();
    let chapter = page[start..].split("\n## ").next().unwrap();
    let rows = chapter.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn every_mutant_is_named_and_every_row_is_a_mutant() {
    let rows = rows(&page(), "## Mutants");
    for mutant in PlayedMutant::all() {
        let name = format!("`{}`", mutant.name());
        assert!(rows.iter().any(|row| row[0] == name), "no row for {name}");
    }
    for row in rows {
        let name = row[0].trim_matches('`');
        let mutant = PlayedMutant::named(name).expect(name);
        assert!(mutant.found_by().iter().all(|invariant| row[2].contains(invariant)), "{name}");
    }
}
