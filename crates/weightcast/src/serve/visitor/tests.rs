//! What a connection passes on, and that it passes nothing on once it is to close.

use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};

use tokio::time::Instant;

use super::super::admission::Admission;
use super::super::queue::ClientOrigin;
use super::*;
use crate::limits::STRANGER_DEADLINE;

/// Says what was asked of it.
struct Told {
    told: Arc<Mutex<Vec<&'static str>>>,
    vectored: bool,
}

impl Told {
    fn tell<T>(&self, what: &'static str, answer: T) -> Poll<Result<T>> {
        self.told.lock().unwrap().push(what);
        Poll::Ready(Ok(answer))
    }
}

impl AsyncRead for Told {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        buffer.put_slice(b"hello");
        self.tell("read", ())
    }
}

impl AsyncWrite for Told {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.tell("write", bytes.len())
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.tell("write all", slices.iter().map(|slice| slice.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.vectored
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.tell("flush", ())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<()>> {
        self.tell("shut down", ())
    }
}

#[derive(Default)]
struct Noted(Mutex<u32>);

impl Wake for Noted {
    fn wake(self: Arc<Self>) {
        *self.0.lock().unwrap() += 1;
    }
}

type SocketAnswers = Vec<Poll<std::result::Result<usize, ErrorKind>>>;

/// All that can be asked of a socket.
fn ask(visitor: &mut Visitor, cx: &mut Context<'_>) -> SocketAnswers {
    let mut bytes = [0; 9];
    let mut buffer = ReadBuf::new(&mut bytes);
    let mut pinned = Pin::new(visitor);
    let read = pinned.as_mut().poll_read(cx, &mut buffer);
    let filled = buffer.filled().len();
    let slices = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
    let asked = [
        read.map_ok(|()| filled),
        pinned.as_mut().poll_write(cx, b"abc"),
        pinned.as_mut().poll_write_vectored(cx, &slices),
        pinned.as_mut().poll_flush(cx).map_ok(|()| 0),
        pinned.as_mut().poll_shutdown(cx).map_ok(|()| 0),
    ];
    asked.into_iter().map(|polled| polled.map_err(|error| error.kind())).collect()
}

#[test]
fn a_connection_passes_on_what_it_is_asked_until_it_is_to_close() {
    for vectored in [false, true] {
        let (admission, now) = (Admission::new(), Instant::now());
        let place = admission.enter(ClientOrigin::Process(1), now);
        let told = Arc::new(Mutex::new(Vec::new()));
        let socket = Told { told: Arc::clone(&told), vectored };
        let mut visitor = Visitor::new(Box::new(socket), CallerAddress::new(None), place);
        assert_eq!(visitor.is_write_vectored(), vectored);
        let woken = Arc::new(Noted::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = &mut Context::from_waker(&waker);
        let well: SocketAnswers = [5, 3, 5, 0, 0].map(|count| Poll::Ready(Ok(count))).into();
        assert_eq!(ask(&mut visitor, cx), well);
        let all = ["read", "write", "write all", "flush", "shut down"];
        assert_eq!(*told.lock().unwrap(), all);
        assert_eq!(*woken.0.lock().unwrap(), 0);
        admission.close_late(now + STRANGER_DEADLINE);
        assert_eq!(*woken.0.lock().unwrap(), 1, "who waits hears of it");
        for _ in 0..2 {
            let closed = [(); 5].map(|()| Poll::Ready(Err(ErrorKind::ConnectionAborted)));
            assert_eq!(ask(&mut visitor, cx), closed);
        }
        assert_eq!(told.lock().unwrap().len(), all.len(), "the socket is not asked any more");
    }
}
