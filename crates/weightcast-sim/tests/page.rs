//! `docs/invariants.md` and the code name the same checkers and faults.

use std::path::{Path, PathBuf};

use weightcast_sim::{FaultKind, PushFault, UpdateFault};

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn page() -> String {
    std::fs::read_to_string(here("../../docs/invariants.md")).unwrap()
}

/// Cells of the rows of a chapter's table.
fn rows(page: &str, chapter: &str) -> Vec<Vec<String>> {
    let start = page.find(chapter).unwrap() + chapter.len();
    let chapter = page[start..].split("\n## ").next().unwrap();
    let rows = chapter.lines().filter(|line| line.starts_with("| ")).skip(1);
    rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn every_checker_has_a_row_and_every_named_file_exists() {
    let page = page();
    let rows = rows(&page, "# Invariants");
    let folders = ["src/checkers", "src/updates/checkers", "src/pushes/checkers"].map(here);
    for entry in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let invariant = name.trim_end_matches(".rs").to_uppercase();
        let named = |row: &Vec<String>| row[0].split(", ").any(|cell| cell == invariant);
        assert!(name == "mod.rs" || rows.iter().any(named), "no row for {invariant}");
    }
    let cells = rows.iter().flat_map(|row| row[3].split('`').skip(1).step_by(2));
    for file in cells.filter(|cell| cell.ends_with(".rs") && !cell.contains('/')) {
        assert!(here("src/checkers").join(file).exists(), "{file}");
    }
}

#[test]
fn every_kind_of_fault_is_named() {
    let page = page();
    let updates = UpdateFault::ALL.iter().map(|kind| kind.name());
    let pushes = PushFault::ALL.iter().map(|kind| kind.name());
    for name in FaultKind::ALL.iter().map(|kind| kind.name()).chain(updates).chain(pushes) {
        assert!(page.contains(&format!("\"{name}\"")), "{name}");
    }
}
