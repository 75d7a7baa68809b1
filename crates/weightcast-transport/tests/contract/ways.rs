//! The ways under test, behind one small trait.

use std::sync::Arc;
use std::time::{Duration, Instant};
use weightcast_transport::*;

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Bytes that a read has brought so far.
pub(crate) fn arrived(options: &TransferOptions) -> u64 {
    options.gauge.look().map_or(0, |reading| reading.arrived)
}

pub(crate) fn token() -> Auth {
    Auth::with_token(Secret::new("a token of tests"))
}

/// Deterministic bytes.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// A source in this process, and a peer that reads it by one way.
pub(crate) trait Way: Sync {
    fn new() -> Self;
    fn exports(&self) -> &Arc<ExportTable>;
    fn peer(&self) -> &Peer;

    /// Zeros that can be served by this way.
    fn memory(len: usize) -> Region {
        Region::allocate(len).unwrap()
    }

    /// Bytes that can be served by this way.
    fn holding(bytes: &[u8]) -> Region {
        let region = Self::memory(bytes.len());
        region.write_at(0, bytes).unwrap();
        region
    }

    fn expose(&self, contents: &[&[u8]]) -> ExportId {
        let regions = contents.iter().map(|bytes| Self::holding(bytes));
        self.exports().expose(1, regions.collect::<Vec<_>>())
    }

    /// An export that was read came this way, and no other was taken in its place.
    fn came(&self, export: ExportId) {
        assert_eq!(self.peer().way_to(export, 1), self.peer().way());
    }

    fn job(&self, export: ExportId, copies: Vec<StridedCopy>) -> SourceJob<'_> {
        SourceJob { peer: self.peer(), export, generation: 1, copies }
    }

    fn read(
        &self,
        export: ExportId,
        copies: Vec<StridedCopy>,
        targets: &[Region],
        slots: usize,
    ) -> Result<Vec<Digest>, ReadError> {
        let options =
            TransferOptions { slots, deadline: Some(soon()), ..TransferOptions::default() };
        read(&[self.job(export, copies)], targets, &options)
    }
}

/// A data server and a peer of this very process.
pub(crate) struct Served {
    server: DataServer,
    peer: Peer,
}

impl Served {
    fn by(way: weightcast_transport::Way) -> Self {
        let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), token()).unwrap();
        let peer = match way {
            weightcast_transport::Way::Reference => Peer::connect_within(&server, &token(), soon()),
            _ => Peer::connect_by(way, server.addr(), &token(), soon()),
        };
        let peer = peer.unwrap();
        assert_eq!(peer.way(), way);
        Self { server, peer }
    }
}

macro_rules! served {
    ($name:ident) => {
        pub(crate) struct $name(Served);

        impl Way for $name {
            fn new() -> Self {
                Self(Served::by(weightcast_transport::Way::$name))
            }
            fn exports(&self) -> &Arc<ExportTable> {
                self.0.server.exports()
            }
            fn peer(&self) -> &Peer {
                &self.0.peer
            }
        }
    };
}

served!(Reference);
served!(Direct);
served!(Tcp);

/// As the others, of memory that is shared.
pub(crate) struct Shared(Served);

impl Way for Shared {
    fn new() -> Self {
        Self(Served::by(weightcast_transport::Way::Shared))
    }
    fn exports(&self) -> &Arc<ExportTable> {
        self.0.server.exports()
    }
    fn peer(&self) -> &Peer {
        &self.0.peer
    }
    fn memory(len: usize) -> Region {
        Region::allocate_shared(len).unwrap()
    }
}

/// One test per way for each of the named generic functions.
macro_rules! for_every_way {
    ($($test:ident),* $(,)?) => {
        for_every_way!(@way reference, Reference, $($test),*);
        for_every_way!(@way direct, Direct, $($test),*);
        for_every_way!(@way tcp, Tcp, $($test),*);
        for_every_way!(@way shared, Shared, $($test),*);
    };
    (@way $module:ident, $way:ident, $($test:ident),*) => {
        mod $module {
            $(#[test]
            fn $test() {
                super::$test::<$crate::ways::$way>();
            })*
        }
    };
}
