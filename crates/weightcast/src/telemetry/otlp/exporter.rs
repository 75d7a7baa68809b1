//! The thread that sends spans to the collector.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc as reply;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::transport::Channel;

use super::collector::Collector;
use super::message::request;
use super::wire::trace_service_client::TraceServiceClient;
use crate::error::Error;
use crate::limits::{COLLECTOR_PATIENCE, SENT_SPANS, SPANS_EVERY, WAITING_SPANS};
use crate::telemetry::finished_span::FinishedSpan;

/// Dropped when all that was handed over before is sent.
type SpansSent = reply::Sender<Infallible>;

/// What spans are handed to. Its thread lasts as long as this.
pub(super) struct Exporter {
    spans: mpsc::Sender<FinishedSpan>,
    flushes: mpsc::UnboundedSender<SpansSent>,
    delivery: Arc<Delivery>,
}

/// How it goes.
struct Delivery {
    url: String,
    /// Spans that were dropped since the collector took some.
    dropped: AtomicU64,
    /// Whether the collector took nothing the last time.
    failing: AtomicBool,
}

/// A flush that is under way.
pub(super) struct Flushing {
    done: reply::Receiver<Infallible>,
    delivery: Arc<Delivery>,
}

impl Exporter {
    /// Starts the thread; connects with the first spans.
    pub(super) fn start(collector: Collector) -> Result<Self, Error> {
        let (spans, queue) = mpsc::channel(WAITING_SPANS);
        let (flushes, asked) = mpsc::unbounded_channel();
        let Collector { url, endpoint } = collector;
        let (dropped, failing) = (AtomicU64::new(0), AtomicBool::new(false));
        let delivery = Arc::new(Delivery { url, dropped, failing });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| Error::io("start the runtime for spans", e))?;
        let of_thread = Arc::clone(&delivery);
        let run = async move {
            let client = TraceServiceClient::new(endpoint.connect_lazy());
            let batch = Vec::with_capacity(SENT_SPANS);
            let warned = false;
            SpanSender { client, queue, asked, batch, delivery: of_thread, warned }.run().await;
        };
        std::thread::Builder::new()
            .name("weightcast-otlp".to_owned())
            .spawn(move || runtime.block_on(run))
            .map_err(|e| Error::io("start the thread for spans", e))?;
        Ok(Self { spans, flushes, delivery })
    }

    /// The collector's address.
    pub(super) fn url(&self) -> &str {
        &self.delivery.url
    }

    /// Hands a span over, or drops it if too many wait.
    pub(super) fn send(&self, span: FinishedSpan) {
        if span.place.is_some() && self.spans.try_send(span).is_err() {
            self.delivery.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Has all spans sent that wait. None if the collector takes nothing: nobody should wait for that.
    pub(super) fn flush(&self) -> Option<Flushing> {
        if self.delivery.failing.load(Ordering::Relaxed) {
            return None;
        }
        let (asks, done) = reply::channel();
        self.flushes.send(asks).ok()?;
        Some(Flushing { done, delivery: Arc::clone(&self.delivery) })
    }
}

impl Flushing {
    /// Waits for the end. A collector that needs longer is not waited for again until it takes spans.
    pub(super) fn wait(self, limit: Duration) {
        if let Err(reply::RecvTimeoutError::Timeout) = self.done.recv_timeout(limit) {
            self.delivery.failing.store(true, Ordering::Relaxed);
        }
    }
}

/// What the thread owns.
struct SpanSender {
    client: TraceServiceClient<Channel>,
    queue: mpsc::Receiver<FinishedSpan>,
    asked: mpsc::UnboundedReceiver<SpansSent>,
    /// Spans of the next message.
    batch: Vec<FinishedSpan>,
    delivery: Arc<Delivery>,
    /// Whether it was said that spans are missing: said once.
    warned: bool,
}

impl SpanSender {
    async fn run(mut self) {
        while let Some(flush) = self.gather().await {
            self.export().await;
            if let Some(_done) = flush {
                // At most what waits now: others go on handing over.
                for _ in 0..WAITING_SPANS.div_ceil(SENT_SPANS) {
                    while self.batch.len() < SENT_SPANS
                        && let Ok(span) = self.queue.try_recv()
                    {
                        self.batch.push(span);
                    }
                    self.export().await;
                }
            }
        }
    }

    /// Gathers spans of one message: until there are enough, they have waited long enough, or somebody asks for a
    /// flush, which is returned. None if there are no more to come.
    async fn gather(&mut self) -> Option<Option<SpansSent>> {
        let mut until = None;
        loop {
            let room = SENT_SPANS - self.batch.len();
            if room == 0 {
                return Some(None);
            }
            tokio::select! {
                biased;
                flush = self.asked.recv() => return flush.map(Some),
                got = self.queue.recv_many(&mut self.batch, room) => {
                    if got == 0 {
                        return None;
                    }
                    until.get_or_insert_with(|| Instant::now() + SPANS_EVERY);
                }
                () = sleep_until(until.unwrap_or_else(Instant::now)), if until.is_some() => {
                    return Some(None);
                }
            }
        }
    }

    /// Sends the batch, once. What is not taken is dropped.
    async fn export(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let spans = std::mem::take(&mut self.batch);
        let count = spans.len() as u64;
        let sent = timeout(COLLECTOR_PATIENCE, self.client.export(request(spans))).await;
        let refused = match sent {
            Ok(Ok(answer)) => answer.into_inner().partial_success.and_then(|partial| {
                let rejected = u64::try_from(partial.rejected_spans).unwrap_or(0);
                (rejected > 0).then_some((rejected, partial.error_message))
            }),
            Ok(Err(status)) => Some((count, status.to_string())),
            Err(_) => Some((count, format!("no answer within {COLLECTOR_PATIENCE:?}"))),
        };
        self.conclude(count, refused);
    }

    /// Remembers and says how a message went: of so many spans, so many were refused, with a reason.
    fn conclude(&mut self, count: u64, refused: Option<(u64, String)>) {
        let (lost, reason) = refused.unwrap_or((0, "too many spans at once".to_owned()));
        self.delivery.failing.store(lost == count, Ordering::Relaxed);
        let dropped = self.delivery.dropped.fetch_add(lost, Ordering::Relaxed) + lost;
        if dropped > 0 && !std::mem::replace(&mut self.warned, true) {
            let url = &self.delivery.url;
            tracing::warn!(
                collector = url,
                reason,
                "spans are missing at the collector; said once"
            );
        }
        if lost < count && self.delivery.dropped.swap(0, Ordering::Relaxed) > 0 {
            tracing::info!(dropped, "the collector takes spans, after some that it lacks");
        }
    }
}

#[cfg(test)]
mod tests;
