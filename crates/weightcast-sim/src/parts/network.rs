//! Streams between processes and the server: ordered, delayed, breakable.

use std::collections::BTreeMap;

use weightcast_protocol::{ConnectionId, Span, Time};

use crate::base::rng::Rng;
use crate::parts::queue::Life;

/// One stream.
#[derive(Debug)]
pub(crate) struct SessionStream {
    pub(crate) client: Life,
    /// The machine whose server the stream leads to.
    host: usize,
    /// When the last message to the server arrives. The next message can't overtake it.
    up: Time,
    /// The same for messages to the process.
    down: Time,
}

/// All streams that carry messages.
#[derive(Debug)]
pub(crate) struct Network {
    streams: BTreeMap<ConnectionId, SessionStream>,
    opened: u64,
    /// How many of a thousand messages are late.
    pub(crate) late: u64,
    /// The longest that a late message takes.
    late_by: Span,
}

impl Network {
    pub(crate) fn new(late: u64, late_by: Span) -> Self {
        Self { streams: BTreeMap::new(), opened: 0, late, late_by }
    }

    pub(crate) fn open(&mut self, client: Life, host: usize) -> ConnectionId {
        self.opened += 1;
        let stream = ConnectionId(self.opened);
        self.streams.insert(stream, SessionStream { client, host, up: Time(0), down: Time(0) });
        stream
    }

    /// Breaks a stream: what is on it is lost.
    pub(crate) fn cut(&mut self, stream: ConnectionId) -> Option<SessionStream> {
        self.streams.remove(&stream)
    }

    pub(crate) fn client(&self, stream: ConnectionId) -> Option<Life> {
        self.streams.get(&stream).map(|stream| stream.client)
    }

    /// The machine that the stream leads to.
    pub(crate) fn host(&self, stream: ConnectionId) -> Option<usize> {
        self.streams.get(&stream).map(|stream| stream.host)
    }

    /// All streams to a machine.
    pub(crate) fn streams_of(&self, host: usize) -> Vec<ConnectionId> {
        let there = self.streams.iter().filter(|(_, stream)| stream.host == host);
        there.map(|(id, _)| *id).collect()
    }

    /// Messages sent one way on a stream do not arrive before `until`.
    pub(crate) fn stall(&mut self, stream: ConnectionId, up: bool, until: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            let way = if up { &mut stream.up } else { &mut stream.down };
            *way = until.max(*way);
        }
    }

    /// When a message sent now arrives at the server; `None` if the stream is broken.
    pub(crate) fn up(&mut self, stream: ConnectionId, now: Time, rng: &mut Rng) -> Option<Time> {
        let arrives = now + self.delay(rng);
        let stream = self.streams.get_mut(&stream)?;
        stream.up = stream.up.max(arrives);
        Some(stream.up)
    }

    /// The same for the other direction.
    pub(crate) fn down(&mut self, stream: ConnectionId, now: Time, rng: &mut Rng) -> Option<Time> {
        let arrives = now + self.delay(rng);
        let stream = self.streams.get_mut(&stream)?;
        stream.down = stream.down.max(arrives);
        Some(stream.down)
    }

    /// How long a message takes: at most 2 ms, but 10 ms or more for `late` of a thousand messages.
    pub(crate) fn delay(&self, rng: &mut Rng) -> Span {
        let micros = if rng.chance(self.late) {
            rng.between(10_000, self.late_by.0 / 1_000)
        } else {
            rng.between(50, 2_000)
        };
        Span(micros * 1_000)
    }
}
