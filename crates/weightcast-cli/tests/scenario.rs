//! `sim --scenario`: for people and for programs, of a figure of two cases.

use std::process::{Command, Output};

use serde_json::{Value, json};

fn play(file: &std::path::Path, json: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast"));
    command.args(["sim", "--scenario"]).arg(file).args(json.then_some("--json"));
    command.output().expect("it runs")
}

#[test]
fn a_scenario_is_told_case_by_case() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios");
    let figure = format!("{folder}/figure-12-cross-datacentre.json");
    let figure = std::fs::read_to_string(figure).expect("a figure");
    let mut figure: Value = serde_json::from_str(&figure).expect("JSON");
    figure["cases"].as_array_mut().expect("cases").truncate(2);
    figure["assumptions"] = json!(["only this"]);
    let file = std::env::temp_dir().join(format!("weightcast-figure-{}", std::process::id()));
    std::fs::write(&file, figure.to_string()).expect("a file");
    let (told, listed) = (play(&file, false), play(&file, true));
    std::fs::remove_file(&file).expect("it is there");
    let missing = play(&file, true);
    assert_eq!(missing.status.code(), Some(1));
    let said = String::from_utf8_lossy(&missing.stderr);
    assert!(said.contains(&*file.to_string_lossy()), "{said}");

    assert!(told.status.success() && listed.status.success(), "{told:?} {listed:?}");
    let told = String::from_utf8_lossy(&told.stdout);
    let listed: Value = serde_json::from_slice(&listed.stdout).expect("JSON and nothing else");
    for field in ["figure", "about", "assumptions"] {
        assert_eq!(listed[field], figure[field]);
    }
    let names = |of: &Value, field: &str| -> Vec<String> {
        let cases = of["cases"].as_array().expect("cases").iter();
        cases.map(|case| case[field].as_str().expect("a name").to_owned()).collect()
    };
    let cases = names(&figure, "name");
    assert_eq!(names(&listed, "case"), cases);
    let said = |field: &str| figure[field].as_str().expect("text");
    assert!(told.starts_with(&format!("{}\n{}\n", said("figure"), said("about"))), "{told}");
    assert!(cases.iter().all(|case| told.contains(&format!("\n{case}\n"))), "{told}");
    assert!(told.ends_with("\nassumed: only this\n"), "{told}");
}
