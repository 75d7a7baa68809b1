//! Counts the calls of a handle, for the figures of its process.

use std::time::Instant;

use weightcast_protocol::message::Answer;
use weightcast_protocol::{CallError, Version};

use crate::client::updated::Transfer;
use crate::error::Error;
use crate::metrics::figures::ReadBrought;
use crate::metrics::process::HandleFigures;

/// A call has ended.
pub(super) fn call(
    figures: &HandleFigures,
    call: &'static str,
    started: Instant,
    result: &Result<(Answer, Transfer), Error>,
) {
    let now = Instant::now();
    let outcome = result.as_ref().map_or_else(Error::name, |(answer, _)| answer.outcome());
    figures.count(|model| {
        model.call_ended(now, call, outcome, now - started);
        if let Some(version) = heard_of(result) {
            model.heard_of(version);
        }
        if let Ok((Answer::Committed { .. }, transfer)) = result {
            model.read_ended(now, &brought(transfer));
        }
    });
}

/// Says in the span of a call how the call has ended.
pub(super) fn traced(span: &tracing::Span, result: &Result<(Answer, Transfer), Error>) {
    if span.is_disabled() {
        return;
    }
    let outcome = result.as_ref().map_or_else(Error::name, |(answer, _)| answer.outcome());
    span.record("outcome", outcome);
    if let Some(version) = heard_of(result) {
        span.record("version", tracing::field::display(version));
    }
    if let Ok((Answer::Committed { source, .. }, transfer)) = result {
        span.record("source", source).record("bytes", transfer.bytes);
    }
}

/// A wait for the seal has ended.
pub(super) fn wait_sealed(figures: &HandleFigures, started: Instant, result: &Result<(), Error>) {
    let now = Instant::now();
    let outcome = result.as_ref().map_or_else(Error::name, |()| "ok");
    figures.count(|model| model.call_ended(now, "wait_sealed", outcome, now - started));
}

/// The newest version that an answer names.
pub(super) fn heard_of(result: &Result<(Answer, Transfer), Error>) -> Option<Version> {
    match result {
        Ok((answer, _)) => match answer {
            Answer::Published { version }
            | Answer::Committed { version, .. }
            | Answer::Retained { version }
            | Answer::Described { version, .. } => Some(*version),
            Answer::Unchanged { held } => *held,
            Answer::Listed(listing) => listing.versions.keys().next_back().copied(),
            Answer::Registered { .. }
            | Answer::Unregistered
            | Answer::Unpublished
            | Answer::LetGo => None,
        },
        Err(Error::Call(CallError::VersionUnavailable { latest, .. })) => *latest,
        Err(_) => None,
    }
}

fn brought(transfer: &Transfer) -> ReadBrought {
    ReadBrought {
        shared: transfer.shared,
        direct: transfer.direct,
        tcp: transfer.tcp,
        unchanged: transfer.unchanged,
        seconds: transfer.seconds,
        plan_seconds: transfer.plan_seconds,
        install_seconds: transfer.install_seconds,
    }
}
