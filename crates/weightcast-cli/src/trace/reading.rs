//! The text of a trace file as spans.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use serde_json::Value;

/// What one file tells.
#[derive(Debug, Default)]
pub(super) struct TraceContent {
    /// Names of processes, by id.
    pub(super) processes: BTreeMap<u64, String>,
    pub(super) spans: Vec<TracedSpan>,
    /// All events, as the file has them.
    pub(super) events: Vec<Value>,
}

/// One span.
#[derive(Debug)]
pub(super) struct TracedSpan {
    pub(super) name: String,
    pub(super) process: u64,
    pub(super) seconds: f64,
    /// Fields of the span.
    pub(super) fields: BTreeMap<String, Value>,
}

impl TracedSpan {
    /// A field as text; an empty text if the span has none of this name.
    pub(super) fn field(&self, name: &str) -> String {
        match self.fields.get(name) {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }
}

/// Reads events of Chrome's JSON array format, with or without its closing bracket: one event a line, as
/// processes write them and as `--output` does. A last line that its process was killed in is left out.
///
/// Errors: a line that is no event, or no span at all.
pub(super) fn read(text: &str) -> anyhow::Result<TraceContent> {
    let mut content = TraceContent::default();
    let lines: Vec<&str> = text.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        let line = line.trim().trim_end_matches(',');
        if matches!(line, "" | "[" | "]") {
            continue;
        }
        match serde_json::from_str::<Value>(line) {
            Ok(event) => content.add(event).with_context(|| format!("line {}", at + 1))?,
            Err(_) if at + 1 == lines.len() && !text.ends_with('\n') => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("line {} is no event: is this a file that open(trace=) wrote?", at + 1)
                });
            }
        }
    }
    ensure!(
        !content.spans.is_empty(),
        "no span is in the file: no call was made while it was open"
    );
    Ok(content)
}

impl TraceContent {
    fn add(&mut self, event: Value) -> anyhow::Result<()> {
        let process = event["pid"].as_u64().context("an event without a pid")?;
        let fields = event["args"].as_object();
        match (event["ph"].as_str(), event["name"].as_str()) {
            (Some("M"), Some("process_name")) => {
                let name = event["args"]["name"].as_str().unwrap_or_default();
                self.processes.insert(process, name.to_owned());
            }
            (Some("X"), Some(name)) => {
                let micros = event["dur"].as_f64().context("a span without a duration")?;
                let fields = fields.into_iter().flatten();
                self.spans.push(TracedSpan {
                    name: name.to_owned(),
                    process,
                    seconds: micros / 1e6,
                    fields: fields.map(|(name, value)| (name.clone(), value.clone())).collect(),
                });
            }
            _ => {}
        }
        self.events.push(event);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: &str =
        r#"{"ph":"X","name":"call","pid":7,"tid":1,"ts":5,"dur":1500,"args":{"a":"b","n":3}}"#;

    #[test]
    fn files_of_killed_processes_are_read() {
        let name = r#"{"ph":"M","name":"process_name","pid":7,"tid":0,"args":{"name":"python"}}"#;
        for text in [
            format!("[\n{name},\n{SPAN},\n"),
            format!("[\n{name},\n{SPAN}\n]\n"),
            format!("[\n{name},\n{SPAN},\n{}", &SPAN[..40]),
        ] {
            let content = read(&text).unwrap();
            assert_eq!(content.processes, BTreeMap::from([(7, "python".to_owned())]), "{text}");
            let [span] = &content.spans[..] else { panic!("{text}") };
            assert_eq!((span.name.as_str(), span.process, span.seconds), ("call", 7, 0.0015));
            assert_eq!([span.field("a"), span.field("n"), span.field("c")], ["b", "3", ""]);
            assert_eq!(content.events.len(), 2);
        }
    }

    #[test]
    fn what_is_no_trace_says_so() {
        for (text, said) in [
            ("", "no span is in the file"),
            ("[\n", "no span is in the file"),
            ("hello\nworld\n", "line 1 is no event"),
            (&format!("[\n{},\n{SPAN},\n", &SPAN[..40]), "line 2 is no event"),
            (r#"{"ph":"X","name":"a","dur":1}"#, "an event without a pid"),
            (r#"{"ph":"X","name":"a","pid":1}"#, "a span without a duration"),
        ] {
            let error = format!("{:#}", read(text).unwrap_err());
            assert!(error.contains(said), "{text:?}: {error}");
        }
    }
}
