//! Collects the spans of weightcast, and gives each to the exits that are open when it ends.

use std::fmt::Debug;
use std::time::{Instant, SystemTime};

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer};
use tracing_subscriber::registry::{LookupSpan, SpanRef};

use super::finished_span::{FinishedSpan, TrackName};
use super::targets::TARGET;
use super::trace_place::{self, Numbered};
use super::{otlp, trace_file};

/// Whether somebody takes spans.
fn are_wanted() -> bool {
    trace_file::is_open() || otlp::is_on()
}

/// All spans of weightcast, while an exit is open.
pub(super) struct SpanFilter;

impl SpanFilter {
    fn wants(metadata: &Metadata<'_>) -> bool {
        are_wanted()
            && metadata.is_span()
            && *metadata.level() <= Level::INFO
            && metadata.target().starts_with(TARGET)
    }
}

impl<S> Filter<S> for SpanFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(if are_wanted() { LevelFilter::INFO } else { LevelFilter::OFF })
    }
}

/// Gives each span away when it ends.
pub(super) struct SpanLayer;

/// A span that has begun.
struct RunningSpan {
    at: SystemTime,
    started: Instant,
    fields: SpanFields,
    track: TrackName,
    /// For a collector: the span's number.
    drawn: Option<u64>,
}

impl<S> Layer<S> for SpanLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = SpanFields::default();
        attributes.record(&mut fields);
        let parent = of_parent(&span, |parent| parent.track.clone());
        let track = parent.unwrap_or_else(|| track_of(span.name(), &fields.0));
        let drawn = otlp::is_on().then(trace_place::draw).flatten();
        let (at, started) = (SystemTime::now(), Instant::now());
        span.extensions_mut().insert(RunningSpan { at, started, fields, track, drawn });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(running) = span.extensions_mut().get_mut::<RunningSpan>() {
            values.record(&mut running.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let place = otlp::is_on().then(|| trace_place::place(&numbers(&span))).flatten();
        let trace = trace_above(&span);
        let Some(RunningSpan { at, started, mut fields, track, .. }) =
            span.extensions_mut().remove()
        else {
            return;
        };
        if let Some(trace) = trace {
            fields.0.insert("trace".to_owned(), trace);
        }
        let (name, took, fields) = (span.name(), started.elapsed(), fields.0);
        let finished = FinishedSpan { name, track, at, took, fields, place };
        trace_file::write(&finished);
        otlp::send(finished);
    }
}

/// What numbers the span, and those above it.
fn numbers<S>(span: &SpanRef<'_, S>) -> Vec<Numbered>
where
    S: for<'a> LookupSpan<'a>,
{
    let numbered = |span: SpanRef<'_, S>| {
        let extensions = span.extensions();
        let running = extensions.get::<RunningSpan>()?;
        Some(Numbered::new(running.drawn, span.name(), &running.fields.0))
    };
    span.scope().map_while(numbered).collect()
}

/// What is known of the span above.
fn of_parent<S, T>(span: &SpanRef<'_, S>, what: impl FnOnce(&RunningSpan) -> T) -> Option<T>
where
    S: for<'a> LookupSpan<'a>,
{
    let parent = span.parent()?;
    let extensions = parent.extensions();
    extensions.get::<RunningSpan>().map(what)
}

/// The name of the call that the span is part of. Known only after spans below the call's have begun.
fn trace_above<S>(span: &SpanRef<'_, S>) -> Option<Value>
where
    S: for<'a> LookupSpan<'a>,
{
    span.scope()
        .skip(1)
        .find_map(|above| above.extensions().get::<RunningSpan>()?.fields.0.get("trace").cloned())
}

/// The track of a span without one above: of the handle for a call, beside it for work in the background.
fn track_of(name: &str, fields: &Map<String, Value>) -> TrackName {
    let field = |name: &str| {
        fields.get(name).map(|value| match value {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        })
    };
    let (model, replica) =
        (field("model").unwrap_or_default(), field("replica").unwrap_or_default());
    let shard = field("shard").map_or(String::new(), |shard| format!("/{shard}"));
    let beside = match name {
        "call" => String::new(),
        "group call" => " at the server".to_owned(),
        other => format!(" ({other})"),
    };
    format!("{model} {replica}{shard}{beside}")
}

/// Fields of a span as JSON.
#[derive(Default)]
struct SpanFields(Map<String, Value>);

impl SpanFields {
    fn put(&mut self, field: &Field, value: Value) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for SpanFields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.put(field, format!("{value:?}").into());
    }
}
