//! Where a span lies in a trace of OpenTelemetry: the numbers that join the spans of all processes.
//!
//! The number of a call's trace is the call's [`TraceId`](weightcast_protocol::TraceId). The trace has one root: the
//! `call` of the group's shard 0, whose own number follows from that of the trace. So the server, and the other shards,
//! know the number of the span that theirs lie in, and no message carries one. Other spans draw their numbers.

use serde_json::{Map, Value};

/// The place of one span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TracePlace {
    pub(super) trace: u128,
    pub(super) span: u64,
    /// None at the top of a trace.
    pub(super) parent: Option<u64>,
    /// Whether a server sees the call, or a handle makes it.
    pub(super) at_server: bool,
}

/// What is known of one span of this process, for its place and those below it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered {
    /// Drawn when the span began; none without a collector.
    pub(super) drawn: Option<u64>,
    /// The trace that the span's own fields name.
    pub(super) trace: Option<u128>,
    /// Whether it is the root of its trace, once that has a name.
    pub(super) is_root: bool,
    /// Whether it is a call as a server sees it.
    pub(super) at_server: bool,
}

impl Numbered {
    pub(super) fn new(drawn: Option<u64>, name: &str, fields: &Map<String, Value>) -> Self {
        let trace = fields.get("trace").and_then(Value::as_str);
        Self {
            drawn,
            trace: trace.and_then(|digits| u128::from_str_radix(digits, 16).ok()),
            is_root: name == "call" && fields.get("shard").and_then(Value::as_u64) == Some(0),
            at_server: name == "group call",
        }
    }

    /// The number of this span in a trace.
    fn number(&self, trace: Option<u128>) -> Option<u64> {
        trace.filter(|_| self.is_root).map(root).or(self.drawn)
    }
}

/// A number for a span that begins. None if the system has no random numbers.
pub(super) fn draw() -> Option<u64> {
    getrandom::u64().ok().filter(|number| *number != 0)
}

/// The number of a trace's root. The trace's own number is a hash, so a half of it will do.
fn root(trace: u128) -> u64 {
    (trace as u64).max(1)
}

/// The place of the first of these spans, of which each lies in the next.
pub(super) fn place(spans: &[Numbered]) -> Option<TracePlace> {
    let (own, top) = (spans.first()?, spans.last()?);
    let named = spans.iter().find_map(|span| span.trace);
    let span = own.number(named)?;
    let parent = match spans.get(1) {
        Some(above) => above.number(named),
        None => named.map(root).filter(|root| *root != span),
    };
    let trace = named.or(top.drawn.map(u128::from))?;
    Some(TracePlace { trace, span, parent, at_server: top.at_server })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn span(drawn: u64, name: &str, fields: Value) -> Numbered {
        Numbered::new(Some(drawn), name, fields.as_object().expect("fields"))
    }

    #[test]
    fn all_processes_place_the_spans_of_a_call_below_one_root() {
        const TRACE: u128 = (3 << 64) | 5;
        let trace = format!("{TRACE:032x}");
        let of = |spans: &[Numbered]| {
            let place = place(spans).expect("a place");
            assert_eq!(place.trace, TRACE);
            (place.span, place.parent, place.at_server)
        };
        let first = span(10, "call", json!({ "shard": 0, "trace": trace }));
        let second = span(11, "call", json!({ "shard": 1, "trace": trace }));
        let server = span(12, "group call", json!({ "trace": trace }));
        let (read, plan) = (span(13, "read", json!({})), span(14, "plan", json!({})));
        assert_eq!(of(&[first]), (5, None, false));
        assert_eq!(of(&[read, first]), (13, Some(5), false));
        assert_eq!(of(&[plan, read, first]), (14, Some(13), false));
        assert_eq!(of(&[second]), (11, Some(5), false));
        assert_eq!(of(&[read, second]), (13, Some(11), false));
        assert_eq!(of(&[server]), (12, Some(5), true));
        assert_eq!(of(&[read, server]), (13, Some(12), true));
    }

    #[test]
    fn a_trace_without_a_name_has_the_number_of_its_top() {
        let (seal, below) = (span(7, "seal", json!({})), span(8, "digest", json!({})));
        let at = |trace, span, parent| Some(TracePlace { trace, span, parent, at_server: false });
        assert_eq!(place(&[seal]), at(7, 7, None));
        assert_eq!(place(&[below, seal]), at(7, 8, Some(7)));
        // A call that never reached the server.
        assert_eq!(place(&[span(9, "call", json!({ "shard": 0 }))]), at(9, 9, None));
        assert_eq!(place(&[Numbered { drawn: None, ..seal }]), None);
        assert_eq!(place(&[]), None);
    }
}
