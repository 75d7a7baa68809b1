//! Streams between processes and the server: ordered, delayed, breakable.

use std::collections::BTreeMap;

use weightcast_protocol::{ConnectionId, Span, Time};

use crate::queue::Life;
use crate::rng::Rng;

/// One stream.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) client: Life,
    /// When the last message each way arrives: the next can't overtake it.
    up: Time,
    down: Time,
}

/// All streams that carry messages.
#[derive(Debug)]
pub(crate) struct Network {
    streams: BTreeMap<ConnectionId, Stream>,
    opened: u64,
    /// How many of a thousand messages are late.
    pub(crate) late: u64,
}

impl Network {
    pub(crate) fn new(late: u64) -> Self {
        Self { streams: BTreeMap::new(), opened: 0, late }
    }

    pub(crate) fn open(&mut self, client: Life) -> ConnectionId {
        self.opened += 1;
        let stream = ConnectionId(self.opened);
        self.streams.insert(stream, Stream { client, up: Time(0), down: Time(0) });
        stream
    }

    /// Breaks a stream: what is on it is lost.
    pub(crate) fn cut(&mut self, stream: ConnectionId) -> Option<Stream> {
        self.streams.remove(&stream)
    }

    pub(crate) fn client(&self, stream: ConnectionId) -> Option<Life> {
        self.streams.get(&stream).map(|stream| stream.client)
    }

    /// What is sent one way on a stream does not arrive before then.
    pub(crate) fn stall(&mut self, stream: ConnectionId, up: bool, until: Time) {
        if let Some(stream) = self.streams.get_mut(&stream) {
            let way = if up { &mut stream.up } else { &mut stream.down };
            *way = until.max(*way);
        }
    }

    /// When a message sent now arrives at the server, if the stream still carries any.
    pub(crate) fn up(&mut self, stream: ConnectionId, now: Time, rng: &mut Rng) -> Option<Time> {
        let stream = self.streams.get_mut(&stream)?;
        stream.up = stream.up.max(now + delay(self.late, rng));
        Some(stream.up)
    }

    /// The same for the other direction.
    pub(crate) fn down(&mut self, stream: ConnectionId, now: Time, rng: &mut Rng) -> Option<Time> {
        let stream = self.streams.get_mut(&stream)?;
        stream.down = stream.down.max(now + delay(self.late, rng));
        Some(stream.down)
    }
}

/// Mostly below 2 ms, `late` times of a thousand much more.
pub(crate) fn delay(late: u64, rng: &mut Rng) -> Span {
    let micros =
        if rng.chance(late) { rng.between(10_000, 150_000) } else { rng.between(50, 2_000) };
    Span(micros * 1_000)
}
