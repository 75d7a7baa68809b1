//! What a process says while it works: log lines, and spans of calls.
//!
//! All code of weightcast uses the macros of `tracing`. This room is the edge where events and spans leave
//! the process. One subscriber serves a process, installed by the first thing that needs one:
//! - lines on standard error, chosen by `WEIGHTCAST_LOG`;
//! - events for another language's logging (`log_queue`);
//! - spans in a file for Perfetto or Chrome (`trace_file`, `span_layer`).
//!
//! A program that has installed a subscriber of its own keeps it, and gets the same events and spans there.
//! Nothing is installed before it is asked for, and a span that nobody wants costs one load.

mod log_queue;
mod span_layer;
mod targets;
mod trace_file;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use tracing::Subscriber;
use tracing_subscriber::filter::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

pub use self::log_queue::{LogLevel, LogLine, log_lines, set_log_level, wake_log_lines};
use self::log_queue::{QueueFilter, QueueLayer};
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
    if !install(LogsTo::Asked) {
        return Err(Error::Config {
            what: "trace".to_owned(),
            problem: format!(
                "the program has a tracing subscriber of its own, which gets the spans of weightcast: \
                 {} is not written",
                path.display()
            ),
        });
    }
    if trace_file::open(&path)? {
        // Spans were not wanted before: whether they are is remembered for each place in the code.
        tracing::callsite::rebuild_interest_cache();
    }
    Ok(())
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
