//! One file of several: processes of different hosts may have one id.

use std::collections::BTreeMap;

use super::reading::TraceContent;

/// The events of all files, as one JSON array. Each process gets a number of its own.
pub(super) fn text(contents: &[TraceContent]) -> String {
    let mut numbers = BTreeMap::new();
    let mut lines = Vec::new();
    for (file, content) in contents.iter().enumerate() {
        for event in &content.events {
            let next = numbers.len() as u64 + 1;
            let number = *numbers.entry((file, event["pid"].as_u64())).or_insert(next);
            let mut event = event.clone();
            event["pid"] = number.into();
            lines.push(event.to_string());
        }
    }
    format!("[\n{}\n]\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::content;
    use super::*;

    #[test]
    fn processes_of_two_files_stay_apart() {
        let span =
            |pid: u64| json!({ "ph": "X", "name": "call", "pid": pid, "dur": 1, "args": {} });
        let text = text(&[content(&[span(7), span(8), span(7)]), content(&[span(7)])]);
        let events: Vec<Value> = serde_json::from_str(&text).unwrap();
        let processes: Vec<_> = events.iter().map(|event| event["pid"].as_u64().unwrap()).collect();
        assert_eq!(processes, [1, 2, 1, 3]);
        // What is joined can be joined again.
        assert_eq!(super::super::reading::read(&text).unwrap().spans.len(), 4);
    }
}
