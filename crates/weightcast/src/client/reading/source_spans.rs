//! Spans of the sources of a read: each lasts until the last byte of its source has arrived.

use std::sync::{Arc, Mutex};

use tracing::Span;
use weightcast_transport::Gauge;

/// The spans of the sources, by job. The end of the read ends those whose bytes did not all come, or were there already.
pub(super) struct SourceSpans(Arc<[Mutex<Option<Span>>]>);

impl SourceSpans {
    /// Spans that have just begun, of the read that this gauge is to measure.
    pub(super) fn new(begun: impl Iterator<Item = Span>, gauge: &Gauge) -> Self {
        let spans = Self(begun.map(|span| Mutex::new(Some(span))).collect());
        let of_gauge = Arc::clone(&spans.0);
        gauge.on_end(move |job| end(&of_gauge[job]));
        spans
    }
}

impl Drop for SourceSpans {
    fn drop(&mut self) {
        self.0.iter().for_each(end);
    }
}

fn end(span: &Mutex<Option<Span>>) {
    span.lock().expect("no panic while held").take();
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use tracing::info_span;
    use tracing::span::Id;
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
    use weightcast_transport::{
        Auth, DataServer, HoldPoint, Holds, Peer, Region, SourceJob, StridedCopy, TransferOptions,
        read,
    };

    use super::*;

    /// Counts spans that have ended.
    struct Ended(Arc<Mutex<usize>>);

    impl<S: tracing::Subscriber> Layer<S> for Ended {
        fn on_close(&self, _: Id, _: Context<'_, S>) {
            *self.0.lock().unwrap() += 1;
        }
    }

    #[test]
    fn a_source_is_over_before_the_bytes_of_the_next_are_told_of() {
        const LEN: usize = 1 << 12;
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let export = server.exports().expose(1, vec![Region::allocate(3 * LEN).unwrap()]);
        let soon = Instant::now() + Duration::from_secs(60);
        let peer = Peer::connect(server.addr(), &Auth::default(), soon).unwrap();
        let jobs = [0, 1, 2].map(|job| {
            let at = (job * LEN) as u64;
            // Nothing is to come from the last one.
            let bytes = if job < 2 { LEN as u64 } else { 0 };
            let copies = vec![StridedCopy::contiguous(0, at, 0, at, bytes)];
            SourceJob { peer: &peer, export, generation: 1, copies }
        });
        let ended: Arc<Mutex<usize>> = Arc::default();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (counts, so_far) = (Arc::clone(&ended), Arc::clone(&seen));
        let look = move |point| {
            if point == HoldPoint::Telling {
                so_far.lock().unwrap().push(*counts.lock().unwrap());
            }
        };
        let options =
            TransferOptions { threads: 1, holds: Holds::new(look), ..TransferOptions::default() };
        let layers = tracing_subscriber::registry().with(Ended(Arc::clone(&ended)));
        tracing::subscriber::with_default(layers, || {
            let begun = jobs.iter().map(|_| info_span!("source"));
            let spans = SourceSpans::new(begun, &options.gauge);
            read(&jobs, &[Region::allocate(3 * LEN).unwrap()], &options).unwrap();
            assert_eq!((&*seen.lock().unwrap(), *ended.lock().unwrap()), (&vec![0, 1], 2));
            drop(spans);
            assert_eq!(*ended.lock().unwrap(), 3);
        });
    }
}
