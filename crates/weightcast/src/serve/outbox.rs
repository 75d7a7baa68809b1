//! Frames that wait for one session to take them: bounded in bytes, shared fields included.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use prost::Message;
use tokio_stream::Stream;
use tonic::Status;

use crate::convert::{ByteMeter, Hold};
use crate::limits::OUTBOX_BYTES;
use crate::wire::ServerFrame;

/// The server's end of a stream. When it is dropped, the stream ends after what waits.
pub(super) struct Outbox(Arc<Mutex<Queue>>);

/// The client's end: what tonic sends on.
pub(super) struct Frames(Arc<Mutex<Queue>>);

#[derive(Default)]
struct Queue {
    frames: VecDeque<Waiting>,
    /// Bytes of all frames that wait, shared fields included.
    bytes: usize,
    over: bool,
    waker: Option<Waker>,
}

struct Waiting {
    frame: ServerFrame,
    bytes: usize,
    /// Counts the frame's own bytes; shared bytes are counted where they were made.
    _hold: Hold,
}

/// Both ends of a stream.
pub(super) fn outbox() -> (Outbox, Frames) {
    let queue = Arc::new(Mutex::new(Queue::default()));
    (Outbox(Arc::clone(&queue)), Frames(queue))
}

impl Outbox {
    /// Lets frames wait. False if too much would wait: then none of them does. A single message may
    /// have any size if nothing else waits.
    pub(super) fn push(&self, frames: Vec<ServerFrame>, meter: &ByteMeter) -> bool {
        let sizes: Vec<usize> = frames.iter().map(size).collect();
        let mut queue = lock(&self.0);
        let bytes = queue.bytes + sizes.iter().sum::<usize>();
        if bytes > OUTBOX_BYTES && !queue.frames.is_empty() {
            return false;
        }
        queue.bytes = bytes;
        for (frame, bytes) in frames.into_iter().zip(sizes) {
            let own = bytes.saturating_sub(shared(&frame));
            queue.frames.push_back(Waiting { frame, bytes, _hold: meter.hold(own) });
        }
        queue.wake();
        true
    }

    /// Bytes of all frames that wait, shared fields included.
    pub(super) fn waiting(&self) -> usize {
        lock(&self.0).bytes
    }

    /// Ends the stream after what waits.
    pub(super) fn end(&self) {
        let mut queue = lock(&self.0);
        queue.over = true;
        queue.wake();
    }

    /// Drops what waits, and ends the stream.
    pub(super) fn cut(self) {
        lock(&self.0).clear();
    }
}

/// Bytes of a frame as it waits: on the wire, and its place in the queue.
fn size(frame: &ServerFrame) -> usize {
    frame.encoded_len() + size_of::<Waiting>()
}

/// Bytes of a frame that frames of other sessions share.
fn shared(frame: &ServerFrame) -> usize {
    use crate::wire::answer::Answer;
    use crate::wire::answered::Result;
    use crate::wire::server_frame::Body;
    let Some(body) = &frame.body else { return 0 };
    match body {
        Body::Page(page) => page.len(),
        Body::Assigned(assigned) => assigned.assignment.as_ref().map_or(0, |a| a.shards.len()),
        Body::Answered(answered) => match &answered.result {
            Some(Result::Answer(answer)) => match &answer.answer {
                Some(Answer::Listed(listing)) => listing.len(),
                Some(Answer::Registered(registered)) => registered.len(),
                Some(Answer::Described(described)) => described.layouts.len(),
                _ => 0,
            },
            _ => 0,
        },
        _ => 0,
    }
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().expect("no panic while held")
}

impl Queue {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn clear(&mut self) {
        self.frames = VecDeque::new();
        self.bytes = 0;
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.end();
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        lock(&self.0).clear();
    }
}

impl Stream for Frames {
    type Item = Result<ServerFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut queue = lock(&self.0);
        if let Some(next) = queue.frames.pop_front() {
            queue.bytes -= next.bytes;
            return Poll::Ready(Some(Ok(next.frame)));
        }
        if queue.over {
            return Poll::Ready(None);
        }
        queue.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use prost::bytes::Bytes;
    use tokio_stream::StreamExt;

    use super::*;
    use crate::limits::PAGE_BYTES;
    use crate::wire::server_frame::Body;

    fn page(bytes: usize) -> ServerFrame {
        ServerFrame { body: Some(Body::Page(Bytes::from(vec![0; bytes]))) }
    }

    #[test]
    fn what_waits_is_bounded_and_counted_until_it_is_taken() {
        let (meter, (outbox, mut frames)) = (ByteMeter::default(), outbox());
        let one = size(&page(PAGE_BYTES));
        let fit = OUTBOX_BYTES / one;
        for _ in 0..fit {
            assert!(outbox.push(vec![page(PAGE_BYTES)], &meter));
        }
        assert!(!outbox.push(vec![page(PAGE_BYTES)], &meter));
        assert_eq!(outbox.waiting(), fit * one);
        assert!(meter.alive() < OUTBOX_BYTES / 100, "shared bytes count where they were made");
        let mut next = || {
            let mut cx = Context::from_waker(Waker::noop());
            Pin::new(&mut frames).poll_next(&mut cx)
        };
        assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
        assert!(outbox.push(vec![page(PAGE_BYTES)], &meter));
        outbox.cut();
        assert!(matches!(next(), Poll::Ready(None)));
        assert_eq!(meter.alive(), 0);
    }

    #[test]
    fn one_message_of_any_size_fits() {
        let (meter, (outbox, frames)) = (ByteMeter::default(), outbox());
        assert!(outbox.push(vec![page(OUTBOX_BYTES)], &meter));
        assert!(!outbox.push(vec![page(1)], &meter));
        drop(frames);
        assert_eq!((outbox.waiting(), meter.alive()), (0, 0));
    }

    #[tokio::test]
    async fn what_waits_is_still_sent_when_the_server_is_done() {
        let (meter, (outbox, frames)) = (ByteMeter::default(), outbox());
        assert!(outbox.push(vec![page(1), page(2)], &meter));
        drop(outbox);
        assert_eq!(frames.collect::<Vec<_>>().await.len(), 2);
    }

    #[test]
    fn as_much_waits_as_may_and_not_a_byte_more() {
        for (more, fits) in [(0, true), (1, false)] {
            let (meter, (outbox, _frames)) = (ByteMeter::default(), outbox());
            let bytes = OUTBOX_BYTES / 2;
            assert!(outbox.push(vec![page(bytes)], &meter));
            let rest = OUTBOX_BYTES - outbox.waiting();
            // Lengths of that size are as long as each other.
            let empty = size(&page(bytes)) - bytes;
            let last = rest - empty + more;
            assert_eq!(size(&page(last)), rest + more);
            let before = (outbox.waiting(), meter.alive());
            assert_eq!(outbox.push(vec![page(last)], &meter), fits);
            if !fits {
                assert_eq!((outbox.waiting(), meter.alive()), before, "none of it waits");
                // Nor does any frame of several that are too much together.
                assert!(!outbox.push(vec![page(last / 2), page(last / 2)], &meter));
                assert_eq!((outbox.waiting(), meter.alive()), before);
            }
        }
    }

    #[test]
    fn what_many_sessions_share_is_counted_where_it_was_made_and_the_rest_here() {
        use crate::wire::answer::Answer as Kind;
        use crate::wire::answered::Result as Outcome;
        use crate::wire::{Answer, Answered, Assigned, Assignment, Committed, Described, Error};
        const SHARED: usize = 5_000;
        let shared = || Bytes::from(vec![1; SHARED]);
        let answered = |answer| {
            let result = Some(Outcome::Answer(Answer { answer }));
            Some(Body::Answered(Answered { seq: 1, result }))
        };
        let assigned = |assignment| {
            Some(Body::Assigned(Assigned { seq: 1, attempt: 1, assignment, since: 1 }))
        };
        let sources = Assignment { shards: shared(), ..Assignment::default() };
        let own = Assignment { replica: "r".repeat(SHARED), ..Assignment::default() };
        let described = Described { layouts: shared(), version: None };
        let committed = Committed { source: "r".repeat(SHARED), version: None };
        for (body, shares) in [
            (Some(Body::Page(shared())), SHARED),
            (assigned(Some(sources)), SHARED),
            (assigned(Some(own)), 0),
            (assigned(None), 0),
            (answered(Some(Kind::Listed(shared()))), SHARED),
            (answered(Some(Kind::Registered(shared()))), SHARED),
            (answered(Some(Kind::Described(described))), SHARED),
            (answered(Some(Kind::Committed(committed))), 0),
            (answered(None), 0),
            (Some(Body::Answered(Answered { seq: 1, result: None })), 0),
            (
                Some(Body::Answered(Answered {
                    seq: 1,
                    result: Some(Outcome::Error(Error::default())),
                })),
                0,
            ),
            (None, 0),
        ] {
            let frame = ServerFrame { body };
            let whole = size(&frame);
            let said = format!("{frame:?}").chars().take(80).collect::<String>();
            let (meter, (outbox, mut frames)) = (ByteMeter::default(), outbox());
            assert!(outbox.push(vec![frame], &meter));
            assert_eq!((outbox.waiting(), meter.alive()), (whole, whole - shares), "{said}");
            let mut cx = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut frames).poll_next(&mut cx).is_ready());
            assert_eq!((outbox.waiting(), meter.alive()), (0, 0), "{said}");
        }
    }

    /// How often a task was woken.
    #[derive(Default)]
    struct WakeCount(std::sync::atomic::AtomicUsize);

    impl std::task::Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_waits_is_woken_by_a_frame_and_by_the_end() {
        type Act = fn(Outbox, &ByteMeter) -> Option<Outbox>;
        let acts: [(Act, Option<bool>); 4] = [
            (|outbox, meter| outbox.push(vec![page(1)], meter).then_some(outbox), Some(true)),
            (
                |outbox, _| {
                    outbox.end();
                    Some(outbox)
                },
                Some(false),
            ),
            (
                |outbox, _| {
                    outbox.cut();
                    None
                },
                Some(false),
            ),
            (
                |outbox, _| {
                    drop(outbox);
                    None
                },
                Some(false),
            ),
        ];
        for (act, next) in acts {
            let (meter, (outbox, mut frames)) = (ByteMeter::default(), outbox());
            let woken = Arc::new(WakeCount::default());
            let waker = Waker::from(Arc::clone(&woken));
            let mut poll = || {
                let polled = Pin::new(&mut frames).poll_next(&mut Context::from_waker(&waker));
                match polled {
                    Poll::Ready(item) => Some(item.is_some()),
                    Poll::Pending => None,
                }
            };
            assert_eq!(poll(), None);
            let _outbox = act(outbox, &meter);
            assert_eq!(woken.0.load(std::sync::atomic::Ordering::Relaxed), 1);
            assert_eq!(poll(), next);
        }
    }

    #[test]
    fn what_is_cut_off_takes_nothing_that_waited() {
        let (meter, (outbox, mut frames)) = (ByteMeter::default(), outbox());
        assert!(outbox.push(vec![page(1), page(2)], &meter));
        outbox.cut();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(Pin::new(&mut frames).poll_next(&mut cx), Poll::Ready(None)));
        assert_eq!(meter.alive(), 0);
    }

    /// A stream may be polled by another task than before.
    #[test]
    fn the_last_that_waits_is_woken() {
        let (meter, (outbox, mut frames)) = (ByteMeter::default(), outbox());
        let woken = [(); 2].map(|()| Arc::new(WakeCount::default()));
        for woken in &woken {
            let waker = Waker::from(Arc::clone(woken));
            assert!(Pin::new(&mut frames).poll_next(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(outbox.push(vec![page(1)], &meter));
        let times = woken.map(|woken| woken.0.load(std::sync::atomic::Ordering::Relaxed));
        assert_eq!(times, [0, 1]);
    }
}
