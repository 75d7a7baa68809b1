//! A process to read from: its data port, the way to it, and what it said about its exports.

use crate::connect::{Direct, Way};
use crate::digest::Digest;
use crate::error::TransportError;
use crate::exports::{ExportId, lock};
use crate::limits::MAX_DESCRIPTIONS;
use crate::patience::Patience;
use crate::pool::Pool;
use crate::secret::{Auth, MacKey};
use crate::stream::Stream;
use crate::wire::{self, Description, Extent, Kind, PlacedExtent};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A connected peer. Shared by any number of transfers; connections are kept for the next.
pub struct Peer {
    addr: SocketAddr,
    /// Or why it is not read directly.
    direct: Result<Direct, String>,
    pool: Pool,
    described: Mutex<HashMap<(ExportId, u64), Arc<Description>>>,
}

impl Peer {
    /// Connects to the data port at `addr` and finds the best way to read from it.
    ///
    /// # Errors
    /// [`TransportError::Unreachable`], [`TransportError::Unauthorized`],
    /// [`TransportError::Timeout`], [`TransportError::Protocol`].
    pub fn connect(
        addr: SocketAddr,
        auth: &Auth,
        deadline: Instant,
    ) -> Result<Self, TransportError> {
        Self::connect_by(Way::Auto, addr, auth, deadline)
    }

    /// [`Peer::connect`] by a given way, for tests and measurements.
    ///
    /// # Errors
    /// As [`Peer::connect`], and [`TransportError::NoDirect`] if a direct way is demanded in vain.
    pub fn connect_by(
        way: Way,
        addr: SocketAddr,
        auth: &Auth,
        deadline: Instant,
    ) -> Result<Self, TransportError> {
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let key = auth.mac_key();
        let mut stream = Stream::open(addr, &key, &patience, || true)?;
        let direct = match way {
            Way::Tcp => Err("TCP was demanded".to_owned()),
            Way::Direct => Ok(reach(&mut stream, &key, true, &patience)?),
            Way::Auto => match reach(&mut stream, &key, false, &patience) {
                Err(TransportError::NoDirect { what, .. }) => Err(what),
                reached => Ok(reached?),
            },
        };
        match &direct {
            Ok(direct) => tracing::info!(%addr, pid = direct.pid(), "reading memory directly"),
            Err(why) => tracing::info!(%addr, why, "reading over TCP"),
        }
        Ok(Self { addr, direct, pool: Pool::new(key, stream), described: Mutex::default() })
    }

    /// The peer's data port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The way that was chosen: direct or TCP.
    pub fn way(&self) -> Way {
        if self.direct.is_ok() { Way::Direct } else { Way::Tcp }
    }

    /// The way that bytes of an export come, once it has been read: those that are made when they
    /// are read come over TCP.
    pub fn way_to(&self, export: ExportId, generation: u64) -> Way {
        if self.is_computed(export, generation) { Way::Tcp } else { self.way() }
    }

    /// Why bytes of an export come the way that [`Peer::way_to`] says.
    pub fn why(&self, export: ExportId, generation: u64) -> &str {
        match &self.direct {
            Err(why) => why,
            Ok(_) if self.is_computed(export, generation) => "made when it is read",
            Ok(_) => "another process of this host and user",
        }
    }

    fn is_computed(&self, export: ExportId, generation: u64) -> bool {
        let computed = |description: &Arc<Description>| description.is_computed();
        lock(&self.described).get(&(export, generation)).is_some_and(computed)
    }

    /// The digests of extents as the source sees them: where a sum differs, this finds the place.
    ///
    /// # Errors
    /// What [`crate::read`] may return.
    pub fn digests(
        &self,
        export: ExportId,
        generation: u64,
        extents: &[PlacedExtent],
        deadline: Instant,
    ) -> Result<Vec<Digest>, TransportError> {
        let mut request = Vec::new();
        let start = wire::begin(&mut request, Kind::Digest);
        wire::put(&mut request, &[export.0, generation]);
        extents.iter().for_each(|placed| wire::put_placed(&mut request, placed));
        wire::finish(&mut request, start);
        if extents.len() > crate::limits::MAX_EXTENTS {
            return Err(crate::error::Refusal::TooMuch.into());
        }
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let digests = self.ask(&request, Kind::Digests, &patience, wire::decode_digests)?;
        if digests.len() != extents.len() {
            return Err(TransportError::Protocol { addr: self.addr, what: "number of digests" });
        }
        Ok(digests)
    }

    /// Where an export lies; asked once.
    pub(crate) fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<Arc<Description>, TransportError> {
        if let Some(known) = lock(&self.described).get(&(export, generation)) {
            return Ok(Arc::clone(known));
        }
        let description = match &self.direct {
            Ok(direct) => direct.describe(export, generation, patience)?,
            Err(_) => {
                let request = wire::named(Kind::Describe, export, generation);
                let decode = |body: &[u8]| wire::decode_description(body);
                self.ask(&request, Kind::Description, patience, decode)?.without_addresses()
            }
        };
        let description = Arc::new(description);
        let mut described = lock(&self.described);
        if described.len() >= MAX_DESCRIPTIONS {
            described.clear();
        }
        described.insert((export, generation), Arc::clone(&description));
        Ok(description)
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
        let start = wire::begin(&mut request, Kind::Await);
        wire::put(&mut request, &[export.0, generation]);
        extents.for_each(|extent| wire::put_extent(&mut request, &extent));
        wire::finish(&mut request, start);
        self.ask(&request, Kind::Progress, patience, |bits| Ok(bits.to_vec()))
    }

    pub(crate) fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref().ok()
    }

    /// Its connections.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// One question, one answer, decoded. A refusal leaves the connection usable.
    pub(crate) fn ask<T>(
        &self,
        request: &[u8],
        kind: Kind,
        patience: &Patience<'_>,
        decode: impl FnOnce(&[u8]) -> Result<T, wire::Malformed>,
    ) -> Result<T, TransportError> {
        let mut stream = self.pool.take(patience, || true)?;
        let answer = stream.ask(request, kind, patience);
        let answer = answer.and_then(|body| stream.decoded(decode(&body)));
        if let Ok(_) | Err(TransportError::Refused(_)) = &answer {
            self.pool.give_back(stream);
        }
        answer
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("addr", &self.addr).field("way", &self.way()).finish()
    }
}

/// Asks the data port for its Unix socket, and connects there.
fn reach(
    stream: &mut Stream,
    key: &MacKey,
    own: bool,
    patience: &Patience<'_>,
) -> Result<Direct, TransportError> {
    let mut request = Vec::new();
    wire::begin(&mut request, Kind::Identify);
    let body = stream.ask(&request, Kind::Identity, patience)?;
    let name = stream.decoded(wire::decode_identity(&body))?;
    Direct::reach(stream.addr, name, key, own, patience)
}
