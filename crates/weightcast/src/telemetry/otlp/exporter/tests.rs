use std::net::TcpListener;
use std::time::SystemTime;

use serde_json::Map;

#[path = "../../../../tests/support/collector.rs"]
#[allow(dead_code, reason = "other tests look closer at what has come")]
mod collector;

use super::*;
use crate::telemetry::trace_place::TracePlace;

/// Only a hang takes so long.
const HANG: Duration = Duration::from_secs(60);

fn span() -> FinishedSpan {
    FinishedSpan {
        name: "call",
        track: String::new(),
        at: SystemTime::UNIX_EPOCH,
        took: Duration::ZERO,
        fields: Map::new(),
        place: Some(TracePlace { trace: 1, span: 1, parent: None, at_server: false }),
    }
}

fn exporter(url: &str) -> Exporter {
    Exporter::start(Collector::parse(url).unwrap()).unwrap()
}

#[test]
fn a_flush_ends_when_all_that_waited_was_taken() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(&format!("http://{}", listener.local_addr().unwrap()));
    let come = collector::collect(listener);
    let count = 2 * SENT_SPANS + 1;
    (0..count).for_each(|_| exporter.send(span()));
    let flushing = exporter.flush().expect("nothing has failed");
    assert_eq!(flushing.done.recv_timeout(HANG), Err(reply::RecvTimeoutError::Disconnected));
    assert_eq!(come.try_iter().count(), count);
    exporter.flush().expect("nothing has failed").wait(HANG);
    assert!(exporter.flush().is_some(), "a flush in time is no failure");
}

#[test]
fn a_collector_that_is_not_there_costs_the_spans() {
    // Port 1 needs root, and nobody listens there.
    let exporter = exporter("http://127.0.0.1:1");
    exporter.send(FinishedSpan { place: None, ..span() });
    exporter.send(span());
    let flushing = exporter.flush().expect("nothing has failed yet");
    assert_eq!(flushing.done.recv_timeout(HANG), Err(reply::RecvTimeoutError::Disconnected));
    assert_eq!(exporter.delivery.dropped.load(Ordering::Relaxed), 1, "without a place: no span");
    assert!(exporter.flush().is_none(), "nobody waits for it again");
}

#[test]
fn a_collector_that_never_answers_costs_what_the_queue_does_not_hold() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let exporter = exporter(&format!("http://{}", silent.local_addr().unwrap()));
    for _ in 0..WAITING_SPANS + SENT_SPANS + 1 {
        exporter.send(span());
    }
    assert!(exporter.delivery.dropped.load(Ordering::Relaxed) >= 1);
    exporter.flush().expect("nothing has failed yet").wait(Duration::ZERO);
    assert!(exporter.flush().is_none(), "nobody waits for it again");
}
