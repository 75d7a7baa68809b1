//! What a process says while it works: log lines, and spans of calls.
//!
//! All code of weightcast uses the macros of `tracing`. This room is the edge where events and spans leave
//! the process. One subscriber serves a process, installed by the first thing that needs one:
//! - lines on standard error, chosen by `WEIGHTCAST_LOG`;
//! - events for another language's logging (`log_queue`);
//! - spans (`span_layer`) in a file for Perfetto or Chrome (`trace_file`);
//! - the same spans at an OpenTelemetry collector (`otlp`).
//!
//! A program that has installed a subscriber of its own keeps it, and gets the same events and spans there.
//! Nothing is installed before it is asked for, and a span that nobody wants costs one load.

mod finished_span;
mod log_queue;
mod otlp;
mod span_layer;
mod targets;
mod trace_file;
mod trace_place;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::log_queue::{LogLevel, LogLine, log_lines, set_log_level, wake_log_lines};
use self::log_queue::{QueueFilter, QueueLayer};
pub(crate) use self::otlp::flush as flush_spans;
use self::span_layer::{SpanFilter, SpanLayer};
use crate::environment::environment;
use crate::error::Error;

/// Where lines of the log go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogsTo {
    /// Standard error: what `WEIGHTCAST_LOG` chooses; warnings by default.
    Stderr,
    /// The queue of `log_lines`; standard error as well, if `WEIGHTCAST_LOG` is set.
    Queue,
    /// Standard error, if `WEIGHTCAST_LOG` is set.
    Asked,
}

/// Logs to standard error. `WEIGHTCAST_LOG` chooses what is logged, as `RUST_LOG` does elsewhere; warnings
/// by default. Does nothing if the process logs already, or has a `tracing` subscriber of its own.
pub fn log_to_stderr() {
    install(LogsTo::Stderr);
}

/// Keeps events for [`log_lines`]; what `WEIGHTCAST_LOG` chooses goes to standard error as well. Does
/// nothing if the process logs already, or has a `tracing` subscriber of its own.
pub fn log_to_queue() {
    install(LogsTo::Queue);
}

/// Writes the spans of all calls of this process to a file from now on, if it is given here or by
/// `WEIGHTCAST_TRACE`. Chrome's and Perfetto's JSON: <https://ui.perfetto.dev> opens it, `weightcast trace`
/// sums it up. Processes of one host may share the file: each line is written whole. Lines are added to
/// what is in the file.
///
/// # Errors
/// The file can't be written; this process writes another one; or the program has a `tracing` subscriber of
/// its own, which gets the spans instead.
pub(crate) fn trace_if_asked(given: Option<&Path>) -> Result<(), Error> {
    let asked = given.map(Path::to_path_buf);
    let Some(path) = asked.or_else(|| environment("WEIGHTCAST_TRACE").map(PathBuf::from)) else {
        return Ok(());
    };
    install_for_spans("trace", || format!("{} is not written", path.display()))?;
    if trace_file::open(&path)? {
        spans_are_wanted();
    }
    Ok(())
}

/// Sends the spans of all calls of this process to an OpenTelemetry collector from now on, if one is given here
/// or by `WEIGHTCAST_OTLP`: `http://HOST:PORT`, over OTLP/gRPC. A collector that is not there costs spans, and
/// nothing else.
///
/// # Errors
/// The address is none; this process sends to another collector; or the program has a `tracing` subscriber of
/// its own, which gets the spans instead.
pub(crate) fn otlp_if_asked(given: Option<&str>) -> Result<(), Error> {
    let Some(url) = given.map(str::to_owned).or_else(|| environment("WEIGHTCAST_OTLP")) else {
        return Ok(());
    };
    let collector = otlp::Collector::parse(&url)?;
    install_for_spans("otlp", || format!("nothing goes to {url}"))?;
    if otlp::open(collector)? {
        spans_are_wanted();
    }
    Ok(())
}

/// Spans were not wanted before: whether they are is remembered for each place in the code.
fn spans_are_wanted() {
    tracing::callsite::rebuild_interest_cache();
}

/// Installs the subscriber of this process for an exit of spans; `missed` says what comes of it otherwise.
fn install_for_spans(what: &str, missed: impl FnOnce() -> String) -> Result<(), Error> {
    if install(LogsTo::Asked) {
        return Ok(());
    }
    Err(Error::Config {
        what: what.to_owned(),
        problem: format!(
            "the program has a tracing subscriber of its own, which gets the spans of weightcast: {}",
            missed()
        ),
    })
}

/// Installs the subscriber of this process, once. Whether it is ours.
fn install(logs: LogsTo) -> bool {
    static OURS: OnceLock<bool> = OnceLock::new();
    *OURS.get_or_init(|| {
        let stderr = match logs {
            LogsTo::Stderr => Some(stderr_layer(EnvFilter::new("warn"))),
            LogsTo::Queue | LogsTo::Asked => {
                environment("WEIGHTCAST_LOG").map(|_| stderr_layer(EnvFilter::new("warn")))
            }
        };
        let queue = (logs == LogsTo::Queue).then(|| QueueLayer.with_filter(QueueFilter));
        tracing_subscriber::registry()
            .with(stderr)
            .with(queue)
            .with(SpanLayer.with_filter(SpanFilter))
            .try_init()
            .is_ok()
    })
}

fn stderr_layer<S>(otherwise: EnvFilter) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let filter = EnvFilter::try_from_env("WEIGHTCAST_LOG").unwrap_or(otherwise);
    tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(filter)
}
