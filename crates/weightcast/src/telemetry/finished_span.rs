//! A span that has ended, as all exits get it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};

use super::trace_place::TracePlace;

/// Events that lie beside each other in the picture: those of one handle, or of one group in a server.
pub(super) type TrackName = String;

/// One finished span.
#[derive(Clone)]
pub(super) struct FinishedSpan {
    pub(super) name: &'static str,
    pub(super) track: TrackName,
    /// The start, by the wall clock.
    pub(super) at: SystemTime,
    pub(super) took: Duration,
    pub(super) fields: Map<String, Value>,
    /// None if no collector was there when the span began.
    pub(super) place: Option<TracePlace>,
}

/// What the process is called in pictures: its program, without the path.
pub(super) fn program() -> String {
    let name = std::env::args().next().unwrap_or_default();
    let file = Path::new(&name).file_name().map(|name| name.to_string_lossy().into_owned());
    file.unwrap_or(name)
}
