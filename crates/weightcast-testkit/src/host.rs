//! The books of a session's host: what is served, what runs, and what the session has asked for.

use std::collections::BTreeMap;

use weightcast_protocol::{Attempt, ConnectionId, Generation, Nonce, OpSeq, Version};

/// What a data port serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// The generation of the memory.
    pub generation: Generation,
    /// How many chunks are served, the first ones, if the memory is being filled; otherwise all
    /// are.
    pub filled: Option<u32>,
}

impl Exposed {
    /// Whether the chunk at this place of the shard is served.
    pub fn has(&self, place: u32) -> bool {
        self.filled.is_none_or(|filled| place < filled)
    }
}

/// What a session has asked its host for and has not taken back.
///
/// `R` is a running read with its progress; `S` is what a staged update has read beside the memory.
/// A rig that ends one of these strikes it out here and tells the session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VirtualHost<R, S = ()> {
    /// The open stream to a server.
    pub stream: Option<ConnectionId>,
    /// What the data port serves.
    pub exposed: Option<Exposed>,
    /// The generation whose digests are being computed.
    pub sealing: Option<Generation>,
    /// Challenges that are still to be answered, oldest first.
    pub proving: Vec<(Generation, Nonce)>,
    /// The read that runs.
    pub reading: Option<R>,
    /// What was read beside the memory.
    pub beside: Option<S>,
    /// The install that runs.
    pub installing: Option<(OpSeq, Attempt)>,
    /// The offload that runs.
    pub offloading: Option<(Version, Generation)>,
    /// Versions of seeds that still look for memory, by the number of the request.
    pub seeding: BTreeMap<u64, Version>,
}

impl<R, S> Default for VirtualHost<R, S> {
    fn default() -> Self {
        Self {
            stream: None,
            exposed: None,
            sealing: None,
            proving: Vec::new(),
            reading: None,
            beside: None,
            installing: None,
            offloading: None,
            seeding: BTreeMap::new(),
        }
    }
}

impl<R, S> VirtualHost<R, S> {
    /// The generation that is served, whole or in part.
    pub fn serves(&self) -> Option<Generation> {
        self.exposed.map(|exposed| exposed.generation)
    }

    /// Serves all of the memory.
    pub(crate) fn expose(&mut self, generation: Generation) {
        self.exposed = Some(Exposed { generation, filled: None });
    }

    /// Serves the memory while it is filled; no chunk is there yet.
    pub(crate) fn expose_filling(&mut self, generation: Generation) {
        self.exposed = Some(Exposed { generation, filled: Some(0) });
    }

    /// Ends the serving of this generation and of older ones. Returns what was served until now.
    pub(crate) fn fence(&mut self, generation: Generation) -> Option<Exposed> {
        self.exposed.take_if(|exposed| exposed.generation <= generation)
    }

    /// Stops a read and an install.
    pub fn stop_read(&mut self) {
        self.reading = None;
        self.installing = None;
    }

    /// Drops what was read beside the memory, so nothing can be installed.
    pub(crate) fn unstage(&mut self) {
        self.beside = None;
        self.installing = None;
    }

    /// Drops all work, because the process or its session has ended. The stream and the data port
    /// are left as they are.
    pub fn give_up(&mut self) {
        let (stream, exposed) = (self.stream, self.exposed);
        *self = Self { stream, exposed, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Host = VirtualHost<()>;

    #[test]
    fn a_chunk_is_served_once_it_is_filled() {
        let filling = Exposed { generation: Generation(1), filled: Some(2) };
        assert_eq!([0, 1, 2].map(|place| filling.has(place)), [true, true, false]);
        assert!(Exposed { filled: None, ..filling }.has(2));
    }

    #[test]
    fn a_fence_spares_what_is_served_at_a_later_generation() {
        let mut host = Host::default();
        host.expose(Generation(2));
        assert_eq!(host.fence(Generation(1)), None);
        assert_eq!(host.serves(), Some(Generation(2)));
        assert!(host.fence(Generation(2)).is_some());
        assert_eq!(host.exposed, None);
    }

    #[test]
    fn a_host_gives_up_its_work_and_keeps_stream_and_port() {
        let mut host = Host { stream: Some(ConnectionId(1)), ..Host::default() };
        host.expose_filling(Generation(1));
        let kept = host.clone();
        host.sealing = Some(Generation(1));
        host.proving.push((Generation(1), Nonce(1)));
        (host.reading, host.beside) = (Some(()), Some(()));
        host.installing = Some((OpSeq(1), Attempt(1)));
        let version = Version { epoch: weightcast_protocol::Epoch(1), number: 1 };
        host.offloading = Some((version, Generation(1)));
        host.seeding.insert(1, version);
        host.give_up();
        assert_eq!(host, kept);
    }
}
