//! Messages to a collector.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::wire::any_value::Value as OtlpValue;
use super::wire::{
    AnyValue, ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans,
    ScopeSpans, Span, SpanKind,
};
use crate::telemetry::finished_span::{FinishedSpan, program};
use crate::telemetry::trace_place::TracePlace;

/// The message with these spans: a list for each role that this process has in them.
pub(super) fn request(spans: Vec<FinishedSpan>) -> ExportTraceServiceRequest {
    let places = spans.into_iter().filter_map(|span| Some((span.place?, span)));
    let (server, client): (Vec<_>, Vec<_>) = places.partition(|(place, _)| place.at_server);
    let roles = [("client", client), ("server", server)].into_iter();
    let roles = roles.filter(|(_, spans)| !spans.is_empty());
    let lists = roles.map(|(role, spans)| ResourceSpans {
        resource: Some(Resource { attributes: process(role) }),
        scope_spans: vec![ScopeSpans {
            scope: Some(InstrumentationScope {
                name: "weightcast".to_owned(),
                version: crate::VERSION.to_owned(),
            }),
            spans: spans.into_iter().map(|(place, span)| one(place, span)).collect(),
        }],
    });
    ExportTraceServiceRequest { resource_spans: lists.collect() }
}

/// What is said of this process, by the names that OpenTelemetry has for that.
fn process(role: &str) -> Vec<KeyValue> {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    [
        ("service.name", Value::from("weightcast")),
        ("service.version", crate::VERSION.into()),
        ("host.name", host.into()),
        ("process.pid", std::process::id().into()),
        ("process.executable.name", program().into()),
        ("weightcast.role", role.into()),
    ]
    .map(|(key, value)| attribute(key.to_owned(), value))
    .into()
}

fn one(place: TracePlace, span: FinishedSpan) -> Span {
    let kind = match span.name {
        "call" => SpanKind::Client,
        "group call" => SpanKind::Server,
        _ => SpanKind::Internal,
    };
    Span {
        trace_id: place.trace.to_be_bytes().into(),
        span_id: place.span.to_be_bytes().into(),
        parent_span_id: place.parent.map_or(Vec::new(), |parent| parent.to_be_bytes().into()),
        name: span.name.to_owned(),
        kind: kind.into(),
        start_time_unix_nano: since_1970(span.at, Duration::ZERO),
        end_time_unix_nano: since_1970(span.at, span.took),
        attributes: span.fields.into_iter().map(|(key, value)| attribute(key, value)).collect(),
    }
}

/// Nanoseconds.
fn since_1970(at: SystemTime, later: Duration) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default() + later;
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

fn attribute(key: String, value: Value) -> KeyValue {
    let value = match value {
        Value::String(text) => OtlpValue::StringValue(text),
        Value::Bool(is) => OtlpValue::BoolValue(is),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => OtlpValue::IntValue(whole),
            (None, Some(number)) => OtlpValue::DoubleValue(number),
            (None, None) => OtlpValue::StringValue(number.to_string()),
        },
        other => OtlpValue::StringValue(other.to_string()),
    };
    KeyValue { key, value: Some(AnyValue { value: Some(value) }) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_keep_their_type_where_otlp_has_it() {
        for (value, sent) in [
            (json!("a"), OtlpValue::StringValue("a".to_owned())),
            (json!(true), OtlpValue::BoolValue(true)),
            (json!(-1), OtlpValue::IntValue(-1)),
            (json!(i64::MAX), OtlpValue::IntValue(i64::MAX)),
            (json!(1u64 << 63), OtlpValue::DoubleValue(9_223_372_036_854_775_808.0)),
            (json!(0.5), OtlpValue::DoubleValue(0.5)),
            (json!([1]), OtlpValue::StringValue("[1]".to_owned())),
        ] {
            let expected = AnyValue { value: Some(sent) };
            assert_eq!(attribute("k".to_owned(), value).value, Some(expected));
        }
    }

    #[test]
    fn spans_are_listed_by_role() {
        let span = |at_server, span| FinishedSpan {
            name: "call",
            track: String::new(),
            at: UNIX_EPOCH + Duration::from_nanos(1),
            took: Duration::from_nanos(2),
            fields: serde_json::Map::new(),
            place: Some(TracePlace { trace: 1, span, parent: None, at_server }),
        };
        let sent = request(vec![span(true, 1), span(false, 2), span(true, 3)]).resource_spans;
        let numbers = |list: &ResourceSpans| -> Vec<u8> {
            list.scope_spans[0].spans.iter().map(|span| span.span_id[7]).collect()
        };
        assert_eq!(sent.iter().map(numbers).collect::<Vec<_>>(), [vec![2], vec![1, 3]]);
        let first = &sent[0].scope_spans[0].spans[0];
        assert_eq!((first.start_time_unix_nano, first.end_time_unix_nano), (1, 3));
        assert_eq!(request(vec![]).resource_spans, []);
    }
}
