//! A process to read from: its data port, the way to it, and what it said about its exports.

use crate::connect::{Direct, Way};
use crate::digest::Digest;
use crate::error::TransportError;
use crate::exports::{ExportId, lock};
use crate::lane::{Endpoint, InProcess};
use crate::limits::MAX_DESCRIPTIONS;
use crate::patience::Patience;
use crate::pool::Pool;
use crate::secret::{Auth, MacKey};
use crate::server::DataServer;
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
    /// How it is read if that carries what is read, or why it is read from its data port.
    near: Result<Box<dyn Endpoint>, String>,
    /// Its data port, which carries everything.
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
            Way::Tcp | Way::Reference => Err("TCP was demanded".to_owned()),
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
        let near = direct.map(|direct| Box::new(direct) as Box<dyn Endpoint>);
        Ok(Self { addr, near, pool: Pool::new(key, stream), described: Mutex::default() })
    }

    /// Connects to a data port of this very process, whose bytes are then read by memmove: the
    /// [`Way::Reference`] that the others are held against.
    ///
    /// # Errors
    /// As [`Peer::connect`].
    pub fn connect_within(
        server: &DataServer,
        auth: &Auth,
        deadline: Instant,
    ) -> Result<Self, TransportError> {
        let peer = Self::connect_by(Way::Tcp, server.addr(), auth, deadline)?;
        let exports = Arc::clone(server.exports());
        Ok(Self { near: Ok(Box::new(InProcess(exports))), ..peer })
    }

    /// The peer's data port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The way that was chosen.
    pub fn way(&self) -> Way {
        self.preferred().way()
    }

    /// The way that bytes of an export come, once it has been read: those that are made when they
    /// are read come over TCP.
    pub fn way_to(&self, export: ExportId, generation: u64) -> Way {
        let described = lock(&self.described);
        let known = described.get(&(export, generation));
        known.map_or(self.preferred(), |description| self.endpoint(description)).way()
    }

    /// Why bytes of an export come the way that [`Peer::way_to`] says.
    pub fn why(&self, export: ExportId, generation: u64) -> &str {
        match &self.near {
            Err(why) => why,
            Ok(near) if self.way_to(export, generation) != near.way() => "made when it is read",
            Ok(near) if near.way() == Way::Reference => "this very process",
            Ok(_) => "another process of this host and user",
        }
    }

    /// Its data port.
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The way that is taken if it carries what is read.
    pub(crate) fn preferred(&self) -> &dyn Endpoint {
        self.near.as_ref().map_or(&self.pool as &dyn Endpoint, |near| &**near)
    }

    /// The first way that carries an export.
    pub(crate) fn endpoint(&self, description: &Description) -> &dyn Endpoint {
        let near = self.preferred();
        let carries = near.abilities().computed || !description.is_computed();
        if carries { near } else { &self.pool }
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
        let digests = self.pool.ask(&request, Kind::Digests, &patience, wire::decode_digests)?;
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
        let description = self.preferred().describe(export, generation, patience)?;
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
        self.pool.ask(&request, Kind::Progress, patience, |bits| Ok(bits.to_vec()))
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
