//! Connections to one data port that rest between transfers.

use crate::base::error::TransportError;
use crate::base::id::ExportId;
use crate::base::limits::MAX_IDLE_STREAMS;
use crate::base::lock::lock;
use crate::base::patience::Patience;
use crate::piece::extent::Extent;
use crate::wire::bodies::put_extent;
use crate::wire::description::{ExportDescription, decode_description};
use crate::wire::frames::{self, FrameKind, Malformed};
use crate::wire::mac::MacKey;
use crate::wire::stream::DataStream;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Instant;

/// Resting connections, the last used on top.
pub(crate) struct Pool {
    addr: SocketAddr,
    key: MacKey,
    idle: Mutex<Vec<DataStream>>,
}

impl Pool {
    /// A pool that begins with one connection.
    pub(crate) fn new(key: MacKey, first: DataStream) -> Self {
        let pool = Self { addr: first.addr, key, idle: Mutex::default() };
        pool.give_back(first);
        pool
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn key(&self) -> &MacKey {
        &self.key
    }

    /// A resting connection, or a new one, for which it waits while it is wanted if the port is full.
    /// Give it back only if nothing went wrong.
    pub(crate) fn take(
        &self,
        patience: &Patience<'_>,
        wanted: impl Fn() -> bool,
    ) -> Result<DataStream, TransportError> {
        let idle = self.resting(Instant::now());
        idle.map_or_else(|| DataStream::reopen(self.addr, &self.key, patience, wanted), Ok)
    }

    /// One question, one answer, decoded. A refusal leaves the connection usable.
    pub(crate) fn ask<T>(
        &self,
        request: &[u8],
        kind: FrameKind,
        patience: &Patience<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, Malformed>,
    ) -> Result<T, TransportError> {
        let mut stream = self.take(patience, || true)?;
        let answer = stream.ask(request, kind, patience);
        let answer = answer.and_then(|body| stream.decoded(decode(&body)));
        if let Ok(_) | Err(TransportError::Refused(_)) = &answer {
            self.give_back(stream);
        }
        answer
    }

    /// Which units are final of an export that is being filled, one bit for each; once they are more than are
    /// `known`, if that is said. `None` if the port has no place for the question.
    pub(crate) fn progress(
        &self,
        export: ExportId,
        generation: u64,
        known: Option<u64>,
        patience: &Patience<'_>,
    ) -> Result<Option<Vec<u8>>, TransportError> {
        let request = match known {
            Some(known) => frames::numbered(FrameKind::News, export, generation, known),
            None => frames::named(FrameKind::Await, export, generation),
        };
        let mut stream = match self.take(patience, || false) {
            Err(TransportError::Full { .. }) => return Ok(None),
            taken => taken?,
        };
        let bits = stream.ask(&request, FrameKind::Progress, patience);
        if let Ok(_) | Err(TransportError::Refused(_)) = &bits {
            self.give_back(stream);
        }
        bits.map(Some)
    }

    /// Waits until extents of an export that is being filled are final: one bit for each of its
    /// units, set if that one is.
    pub(crate) fn wait_final(
        &self,
        export: ExportId,
        generation: u64,
        extents: impl Iterator<Item = Extent>,
        patience: &Patience<'_>,
    ) -> Result<Vec<u8>, TransportError> {
        let mut request = Vec::new();
        let start = frames::begin(&mut request, FrameKind::Await);
        frames::put(&mut request, &[export.0, generation]);
        extents.for_each(|extent| put_extent(&mut request, &extent));
        frames::finish(&mut request, start);
        self.ask(&request, FrameKind::Progress, patience, |bits| Ok(bits.to_vec()))
    }

    /// Describes an export. The kernel does not vouch for the process that answers, so no descriptor
    /// from here may lead to the memory of a process of this host.
    pub(crate) fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<ExportDescription, TransportError> {
        let request = frames::named(FrameKind::Describe, export, generation);
        self.ask(&request, FrameKind::Description, patience, decode_description)
    }

    pub(crate) fn give_back(&self, mut stream: DataStream) {
        let now = Instant::now();
        stream.rest(now);
        let mut idle = lock(&self.idle);
        idle.retain(|stream| stream.is_fresh(now));
        if idle.len() < MAX_IDLE_STREAMS {
            idle.push(stream);
        }
    }

    /// The last used, if it is still of use. What rested too long is closed.
    fn resting(&self, now: Instant) -> Option<DataStream> {
        let mut idle = lock(&self.idle);
        idle.retain(|stream| stream.is_fresh(now));
        idle.pop()
    }
}

#[cfg(test)]
impl Pool {
    /// Streams that rest.
    pub(crate) fn count(&self) -> usize {
        lock(&self.idle).len()
    }
}

#[cfg(test)]
mod questions;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::STREAM_REST;
    use crate::base::secret::Auth;
    use crate::port::server::DataServer;
    use std::time::Duration;

    #[test]
    fn streams_rest_for_a_limited_time_and_in_limited_number() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let key = Auth::default().mac_key();
        let open = || DataStream::open(server.addr(), &key, &Patience::default(), || true).unwrap();
        let pool = Pool::new(key.clone(), open());
        (0..MAX_IDLE_STREAMS).for_each(|_| pool.give_back(open()));
        let count = || lock(&pool.idle).len();
        assert_eq!(count(), MAX_IDLE_STREAMS);
        let now = Instant::now();
        assert!(pool.resting(now).is_some());
        assert_eq!(count(), MAX_IDLE_STREAMS - 1);
        assert!(pool.resting(now + STREAM_REST + Duration::from_secs(1)).is_none());
        assert_eq!(count(), 0, "what rested too long is closed");
        assert!(pool.take(&Patience::default(), || true).is_ok());
    }

    #[test]
    fn whoever_comes_to_rest_sends_home_who_rested_too_long() {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), Auth::default()).unwrap();
        let key = Auth::default().mac_key();
        let open = || DataStream::open(server.addr(), &key, &Patience::default(), || true).unwrap();
        let pool = Pool::new(key.clone(), open());
        pool.give_back(open());
        pool.give_back(open());
        let long_ago = Instant::now() - STREAM_REST - Duration::from_secs(1);
        lock(&pool.idle)[..2].iter_mut().for_each(|stream| stream.rest(long_ago));
        pool.give_back(open());
        assert_eq!(lock(&pool.idle).len(), 2);
        let now = Instant::now();
        assert!(lock(&pool.idle).iter().all(|stream| stream.is_fresh(now)));
        // The last used is the next to be used.
        lock(&pool.idle)[0].rest(long_ago + Duration::from_secs(2));
        let newest = pool.resting(now).unwrap();
        assert!(newest.is_fresh(now + STREAM_REST / 2), "it has only just come");
    }
}
