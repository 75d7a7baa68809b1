//! Events for the logging of another language: kept here until that language takes them. The threads of
//! weightcast never wait for that language's lock, nor run its code.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, MutexGuard, OnceLock};
use std::time::{Duration, SystemTime};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer};

use super::targets::TARGET;
use crate::limits::LOG_LINES;
use crate::per_process::PerProcess;

/// The least important events that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum LogLevel {
    /// None.
    Off,
    /// Errors.
    Error,
    /// Warnings, and errors.
    Warn,
    /// Connections that are made, and other news.
    Info,
    /// What helps to find a fault.
    Debug,
}

/// One event.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// How important it is.
    pub level: LogLevel,
    /// The module that says so, with dots: `weightcast.client.open`, `weightcast.transport.port.server`.
    pub target: String,
    /// The message, with the event's fields behind it.
    pub message: String,
    /// When it was said.
    pub at: SystemTime,
    /// Lines that were dropped just before this one, because nobody took them.
    pub dropped: u64,
}

/// Lines that nobody has taken yet, the oldest first.
#[derive(Default)]
struct WaitingLines {
    lines: VecDeque<LogLine>,
    dropped: u64,
    /// Waiters are to look around.
    woken: bool,
}

static NEWS: Condvar = Condvar::new();
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Warn as u8);

fn lock() -> MutexGuard<'static, WaitingLines> {
    static FIRST: OnceLock<PerProcess<WaitingLines>> = OnceLock::new();
    PerProcess::lock(&FIRST)
}

/// Keeps events of this level and above from now on.
pub fn set_log_level(level: LogLevel) {
    if LEVEL.swap(level as u8, Ordering::Relaxed) != level as u8 {
        // Whether an event is wanted is remembered for each place in the code.
        tracing::callsite::rebuild_interest_cache();
    }
}

/// Takes the lines that wait, the oldest first. If there are none, waits for one: until `limit` has
/// passed, or [`wake_log_lines`] is called. Beyond 1,024 waiting lines, new ones are dropped and counted.
pub fn log_lines(limit: Duration) -> Vec<LogLine> {
    let waiting = lock();
    let idle = |waiting: &mut WaitingLines| waiting.lines.is_empty() && !waiting.woken;
    let (mut waiting, _) =
        NEWS.wait_timeout_while(waiting, limit, idle).expect("no panic while held");
    waiting.woken = false;
    waiting.lines.drain(..).collect()
}

/// Ends the wait of [`log_lines`]: of the one that waits now, or else of the next.
pub fn wake_log_lines() {
    lock().woken = true;
    NEWS.notify_all();
}

fn keep(mut line: LogLine) {
    let mut waiting = lock();
    if waiting.lines.len() >= LOG_LINES {
        waiting.dropped += 1;
        return;
    }
    line.dropped = std::mem::take(&mut waiting.dropped);
    waiting.lines.push_back(line);
    drop(waiting);
    NEWS.notify_one();
}

/// The events that the queue keeps.
pub(super) struct QueueFilter;

impl QueueFilter {
    fn wants(metadata: &Metadata<'_>) -> bool {
        let wanted = LEVEL.load(Ordering::Relaxed);
        metadata.is_event()
            && metadata.target().starts_with(TARGET)
            && level(metadata) as u8 <= wanted
    }
}

impl<S> Filter<S> for QueueFilter {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        Self::wants(metadata)
    }

    fn callsite_enabled(&self, metadata: &'static Metadata<'static>) -> Interest {
        if Self::wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match LEVEL.load(Ordering::Relaxed) {
            0 => LevelFilter::OFF,
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            _ => LevelFilter::DEBUG,
        })
    }
}

/// Puts events into the queue.
pub(super) struct QueueLayer;

impl<S: Subscriber> Layer<S> for QueueLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = EventText::default();
        event.record(&mut text);
        keep(LogLine {
            level: level(event.metadata()),
            target: logger(event.metadata().target()),
            message: text.message + &text.fields,
            at: SystemTime::now(),
            dropped: 0,
        });
    }
}

/// The name of a module as a logger below `weightcast`, whatever its crate.
fn logger(target: &str) -> String {
    let name = target.replace("::", ".");
    name.strip_prefix("weightcast_").map_or(name.clone(), |rest| format!("{TARGET}.{rest}"))
}

fn level(metadata: &Metadata<'_>) -> LogLevel {
    match *metadata.level() {
        Level::ERROR => LogLevel::Error,
        Level::WARN => LogLevel::Warn,
        Level::INFO => LogLevel::Info,
        Level::DEBUG | Level::TRACE => LogLevel::Debug,
    }
}

/// An event as text: the message, and ` name=value` for each further field.
#[derive(Default)]
struct EventText {
    message: String,
    fields: String,
}

impl Visit for EventText {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn loggers_of_all_crates_are_below_one() {
        for (target, name) in [
            ("weightcast", "weightcast"),
            ("weightcast::client::open", "weightcast.client.open"),
            ("weightcast_transport::port::server", "weightcast.transport.port.server"),
        ] {
            assert_eq!(logger(target), name);
        }
    }

    /// One test: queue and level belong to the process.
    #[test]
    fn events_of_ours_wait_in_order_and_a_flood_is_counted() {
        let ours = tracing_subscriber::registry().with(QueueLayer.with_filter(QueueFilter));
        tracing::subscriber::with_default(ours, || {
            tracing::warn!(model = "m", shard = 3, "first");
            tracing::info!("not wanted");
            tracing::warn!(target: "h2", "of another library");
            set_log_level(LogLevel::Info);
            tracing::info!("second");
        });
        let lines = log_lines(Duration::ZERO);
        let told: Vec<_> = lines.iter().map(|line| (line.level, line.message.as_str())).collect();
        assert_eq!(
            told,
            [(LogLevel::Warn, "first model=\"m\" shard=3"), (LogLevel::Info, "second")]
        );
        assert_eq!(lines[0].target, "weightcast.telemetry.log_queue.tests");
        assert_eq!(log_lines(Duration::ZERO), []);
        // A waiter that is woken comes back without a line.
        wake_log_lines();
        assert_eq!(log_lines(Duration::MAX / 2), []);
        for (said, kept, dropped) in [
            (LOG_LINES - 1, LOG_LINES - 1, 0),
            (LOG_LINES, LOG_LINES, 0),
            (LOG_LINES + 1, LOG_LINES, 1),
        ] {
            let line = LogLine {
                level: LogLevel::Warn,
                target: String::new(),
                message: String::new(),
                at: SystemTime::UNIX_EPOCH,
                dropped: 0,
            };
            (0..said).for_each(|_| keep(line.clone()));
            assert_eq!(log_lines(Duration::ZERO).len(), kept);
            keep(line);
            assert_eq!(log_lines(Duration::ZERO)[0].dropped, dropped);
        }
    }
}
