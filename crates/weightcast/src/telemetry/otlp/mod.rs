//! Spans on their way to an OpenTelemetry collector, over OTLP/gRPC.
//!
//! A span that ends is put into a bounded queue, or dropped. One thread of the process ([`exporter`]) takes spans
//! from there, makes messages of them ([`message`]), and sends these. No call waits for the collector.
//!
//! The messages are generated from `proto/otlp.proto`, as those of the control plane are. OpenTelemetry's own exporter
//! would add seven crates, log nothing or each failure, and need a runtime beside its thread. Tests hold the messages
//! against the collector of OpenTelemetry's own crate.

mod collector;
mod exporter;
mod message;
#[allow(missing_docs, unreachable_pub, clippy::all)]
mod wire;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{MutexGuard, OnceLock};

pub(super) use self::collector::Collector;
use self::exporter::Exporter;
use super::finished_span::FinishedSpan;
use crate::error::Error;
use crate::limits::FLUSH;
use crate::per_process::PerProcess;

static ON: AtomicBool = AtomicBool::new(false);

/// Whether spans are sent.
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

/// The exporter of this process. A fork has none, until a handle or a server there asks for one.
fn lock() -> MutexGuard<'static, Option<Exporter>> {
    static FIRST: OnceLock<PerProcess<Option<Exporter>>> = OnceLock::new();
    PerProcess::lock(&FIRST)
}

/// Sends spans to this collector. False if this process does already.
pub(super) fn open(collector: Collector) -> Result<bool, Error> {
    let mut open = lock();
    if let Some(other) = open.as_ref() {
        return match *other.url() == collector.url {
            true => Ok(false),
            false => Err(collector::malformed(format!(
                "this process sends its spans to {} already, and has one collector: name the same",
                other.url()
            ))),
        };
    }
    *open = Some(Exporter::start(collector)?);
    ON.store(true, Ordering::Relaxed);
    Ok(true)
}

/// Hands a span over, if there is a collector.
pub(super) fn send(span: FinishedSpan) {
    if is_on()
        && let Some(exporter) = lock().as_ref()
    {
        exporter.send(span);
    }
}

/// Waits until what was handed over is sent, for a while, and not at all for a collector that takes nothing.
pub(crate) fn flush() {
    if !is_on() {
        return;
    }
    let flushing = lock().as_ref().and_then(Exporter::flush);
    if let Some(flushing) = flushing {
        flushing.wait(FLUSH);
    }
}
