//! Spans, summed up.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

use super::reading::{TraceContent, TracedSpan};

/// What the contents tell.
#[derive(Debug, Serialize)]
pub(super) struct TraceSummary {
    schema: &'static str,
    /// How many processes have written spans.
    processes: usize,
    /// Calls of handles.
    calls: usize,
    /// Of those, calls that a server's process has written of as well.
    joined: usize,
    /// By name; calls by their kind.
    spans: Vec<SpanTimes>,
    /// The slowest calls, the slowest first.
    slowest: Vec<SlowCall>,
}

/// All spans of one name.
#[derive(Debug, PartialEq, Serialize)]
struct SpanTimes {
    name: String,
    count: usize,
    median_s: f64,
    p90_s: f64,
    max_s: f64,
    total_s: f64,
}

/// One call of a handle.
#[derive(Debug, PartialEq, Serialize)]
struct SlowCall {
    trace: String,
    model: String,
    replica: String,
    shard: String,
    call: String,
    outcome: String,
    version: String,
    seconds: f64,
    /// Seconds by the name of the spans below, at the handle and at the server. Spans may overlap.
    within: BTreeMap<String, f64>,
}

/// Sums up; names the `most` slowest calls.
pub(super) fn of(contents: &[TraceContent], most: usize) -> TraceSummary {
    let spans: Vec<&TracedSpan> = contents.iter().flat_map(|file| &file.spans).collect();
    let processes = contents
        .iter()
        .map(|file| file.spans.iter().map(|span| span.process).collect::<BTreeSet<_>>().len());
    let at_servers: BTreeSet<String> = spans
        .iter()
        .filter(|span| span.name == "group call")
        .map(|span| span.field("trace"))
        .collect();
    let mut calls: Vec<&TracedSpan> =
        spans.iter().copied().filter(|span| span.name == "call").collect();
    let joined = calls.iter().filter(|call| at_servers.contains(&call.field("trace"))).count();
    calls.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
    TraceSummary {
        schema: "trace/1",
        processes: processes.sum(),
        calls: calls.len(),
        joined,
        spans: times(&spans),
        slowest: calls.iter().take(most).map(|call| slow_call(call, &spans)).collect(),
    }
}

fn times(spans: &[&TracedSpan]) -> Vec<SpanTimes> {
    let mut by_name = BTreeMap::<String, Vec<f64>>::new();
    for span in spans {
        by_name.entry(kind(span)).or_default().push(span.seconds);
    }
    let times = by_name.into_iter().map(|(name, mut seconds)| {
        seconds.sort_by(f64::total_cmp);
        let count = seconds.len();
        let rank =
            |share: f64| seconds[((share * count as f64).ceil() as usize).clamp(1, count) - 1];
        SpanTimes {
            name,
            count,
            median_s: rank(0.5),
            p90_s: rank(0.9),
            max_s: rank(1.0),
            total_s: seconds.iter().sum(),
        }
    });
    times.collect()
}

/// The name of a span, and for a call its kind: `call update`.
fn kind(span: &TracedSpan) -> String {
    let call = span.field("call");
    match call.split('(').next() {
        Some(kind) if !kind.is_empty() => format!("{} {kind}", span.name),
        _ => span.name.clone(),
    }
}

fn slow_call(call: &TracedSpan, spans: &[&TracedSpan]) -> SlowCall {
    let trace = call.field("trace");
    let below = spans.iter().filter(|span| span.name != "call" && span.name != "group call");
    let mut within = BTreeMap::new();
    for span in below.filter(|span| !trace.is_empty() && span.field("trace") == trace) {
        *within.entry(span.name.clone()).or_insert(0.0) += span.seconds;
    }
    SlowCall {
        trace,
        model: call.field("model"),
        replica: call.field("replica"),
        shard: call.field("shard"),
        call: call.field("call"),
        outcome: call.field("outcome"),
        version: call.field("version"),
        seconds: call.seconds,
        within,
    }
}

impl fmt::Display for TraceSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, calls, joined, .. } = self;
        writeln!(
            f,
            "{processes} processes, {calls} calls, {joined} of them seen by a server as well\n"
        )?;
        writeln!(f, "{:<28}{:>8}{:>12}{:>12}{:>12}", "span", "count", "median", "p90", "longest")?;
        for times in &self.spans {
            let [median, p90, max] = [times.median_s, times.p90_s, times.max_s].map(milliseconds);
            writeln!(f, "{:<28}{:>8}{median:>12}{p90:>12}{max:>12}", times.name, times.count)?;
        }
        if !self.slowest.is_empty() {
            writeln!(f, "\nslowest calls")?;
        }
        for call in &self.slowest {
            let SlowCall { model, replica, shard, outcome, .. } = call;
            let took = milliseconds(call.seconds);
            write!(f, "{took:>12}  {} of {model} {replica}/{shard}: {outcome}", call.call)?;
            let parts: Vec<String> = call
                .within
                .iter()
                .map(|(name, seconds)| format!("{name} {}", milliseconds(*seconds)))
                .collect();
            writeln!(f, "{}{}", if parts.is_empty() { "" } else { "; " }, parts.join(", "))?;
        }
        Ok(())
    }
}

fn milliseconds(seconds: f64) -> String {
    format!("{:.2} ms", seconds * 1e3)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::content;
    use super::*;

    fn span(name: &str, pid: u64, millis: f64, fields: Value) -> Value {
        json!({ "ph": "X", "name": name, "pid": pid, "dur": millis * 1e3, "args": fields })
    }

    fn call(trace: &str, millis: f64) -> Value {
        let fields = json!({
            "call": "update(latest)", "trace": trace, "model": "m", "replica": "r", "shard": 0,
            "outcome": "ok", "version": "3",
        });
        span("call", 1, millis, fields)
    }

    #[test]
    fn a_call_of_two_processes_is_one() {
        let here = content(&[
            call("a", 30.0),
            span("read", 1, 20.0, json!({ "trace": "a" })),
            span("read", 1, 2.0, json!({ "trace": "a" })),
            call("b", 40.0),
            span("seal", 1, 5.0, json!({})),
        ]);
        let server = content(&[
            span("group call", 1, 29.0, json!({ "trace": "a", "call": "update(latest)" })),
            span("drain", 1, 4.0, json!({ "trace": "a" })),
        ]);
        let summary = of(&[here, server], 1);
        assert_eq!((summary.processes, summary.calls, summary.joined), (2, 2, 1));
        let names: Vec<_> = summary.spans.iter().map(|times| times.name.as_str()).collect();
        assert_eq!(names, ["call update", "drain", "group call update", "read", "seal"]);
        let [slowest] = &summary.slowest[..] else { panic!("one was asked for") };
        assert_eq!((slowest.trace.as_str(), slowest.seconds), ("b", 0.04));
        assert!(slowest.within.is_empty());
    }

    #[test]
    fn spans_below_a_call_are_those_of_its_trace() {
        let here = content(&[
            call("a", 30.0),
            span("read", 1, 20.0, json!({ "trace": "a" })),
            span("read", 1, 2.0, json!({ "trace": "a" })),
            span("read", 1, 9.0, json!({ "trace": "b" })),
        ]);
        let within = &of(&[here], 5).slowest[0].within;
        assert_eq!(within.keys().collect::<Vec<_>>(), ["read"]);
        assert!((within["read"] - 0.022).abs() < 1e-9);
    }

    #[test]
    fn times_are_those_of_the_spans() {
        for count in [1_usize, 2, 9, 10, 11] {
            let spans: Vec<Value> =
                (1..=count).rev().map(|n| span("read", 1, n as f64, json!({}))).collect();
            let times = &of(&[content(&spans)], 0).spans[0];
            let rank = |share: f64| (share * count as f64).ceil() / 1e3;
            assert_eq!(times.count, count);
            for (told, expected) in
                [(times.median_s, rank(0.5)), (times.p90_s, rank(0.9)), (times.max_s, rank(1.0))]
            {
                assert!((told - expected).abs() < 1e-9, "{count}: {told} is not {expected}");
            }
        }
    }
}
