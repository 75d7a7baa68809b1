//! A process to read from, or to write to: its data port, the lanes to it, and what it said about its exports.

use crate::base::error::{RequestRefusal, TransportError};
use crate::base::id::ExportId;
use crate::base::limits::{MAX_DESCRIPTIONS, MAX_WORD_BYTES};
use crate::base::lock::lock;
use crate::base::patience::Patience;
use crate::base::secret::Auth;
use crate::lane::kind::{Demand, Meeting};
use crate::lane::way::Way;
use crate::lane::{self, Endpoint, WriteEndpoint};
use crate::memory::digest::Digest;
use crate::piece::extent::PlacedExtent;
use crate::port::server::DataServer;
use crate::wire::description::ExportDescription;
use crate::wire::local_source::LocalSource;
use crate::wire::mac::WordKey;
use crate::wire::pool::Pool;
use crate::wire::stream::DataStream;
use crate::wire::word_frame::word_request;
use crate::wire::{self, FrameKind, Malformed};
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A connected peer. Shared by any number of transfers; connections are kept for the next.
pub struct Peer {
    addr: SocketAddr,
    /// Its data port: what is asked goes there.
    port: Arc<Pool>,
    /// Its process, if that is of this host and a lane needs to know.
    process: Option<Arc<LocalSource>>,
    /// The lanes that both ends offer, the preferred first. The last one carries everything.
    lanes: Vec<Box<dyn Endpoint>>,
    /// Which of them is meant where no export is: the first that takes any memory, or that was demanded.
    preferred: usize,
    /// Why there is no lane before the first.
    passed_over: String,
    described: Mutex<HashMap<(ExportId, u64), Arc<ExportDescription>>>,
    /// Proves what is said to it.
    words: WordKey,
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
        Self::meet(Demand::of(way), addr, auth, deadline)
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
        Self::meet(Demand::within(server.exports()), server.addr(), auth, deadline)
    }

    fn meet(
        demand: Demand,
        addr: SocketAddr,
        auth: &Auth,
        deadline: Instant,
    ) -> Result<Self, TransportError> {
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let key = auth.mac_key();
        let first = DataStream::open(addr, &key, &patience, || true)?;
        let demanded = demand.way != Way::Auto;
        let meeting = Meeting::new(demand, Arc::new(Pool::new(key, first)), patience);
        let (lanes, passed_over) = lane::reach(&meeting)?;
        let port = Arc::clone(&meeting.port);
        let process = if lanes.len() > 1 { meeting.into_process() } else { None };
        let (described, words) = (Mutex::default(), auth.word_key());
        let preferred = lanes.iter().position(|lane| demanded || lane.takes_any_memory());
        let preferred = preferred.unwrap_or_default();
        let peer = Self { addr, port, process, lanes, preferred, passed_over, described, words };
        tracing::info!(%addr, way = %peer.way(), why = peer.why_first(), "connected to a data port");
        Ok(peer)
    }

    /// The peer's data port.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The way that was chosen.
    pub fn way(&self) -> Way {
        self.preferred().way()
    }

    /// The way that bytes of an export come, once it has been read: out of shared memory where they lie
    /// there, and over TCP if they are made when they are read.
    pub fn way_to(&self, export: ExportId, generation: u64) -> Way {
        let known = lock(&self.described).get(&(export, generation)).cloned();
        known.map_or(self.preferred(), |description| self.endpoint(export, &description)).way()
    }

    /// Why bytes of an export come the way that [`Peer::way_to`] says.
    pub fn why(&self, export: ExportId, generation: u64) -> String {
        let known = lock(&self.described).get(&(export, generation)).cloned();
        let Some(description) = known else { return self.why_first().to_owned() };
        let at = self.place(export, &description);
        let passed = self.lanes[..at].iter();
        let not = passed.filter_map(|lane| lane.why_not(export, &description)).next();
        let why = match at {
            at if at == self.preferred => self.why_first(),
            at if at < self.preferred => self.lanes[at].why(),
            _ if description.is_made() => return "made when it is read".to_owned(),
            _ => return not.unwrap_or_else(|| self.lanes[at].why().to_owned()),
        };
        not.map_or(why.to_owned(), |not| format!("{why}; {not}"))
    }

    /// Why [`Peer::way`] was chosen.
    pub fn why_first(&self) -> &str {
        let is_last = self.preferred + 1 == self.lanes.len();
        if is_last { &self.passed_over } else { self.preferred().why() }
    }

    /// Says a word to whoever listens at the peer's data port ([`DataServer::listen`]). Once this returns, the word was
    /// taken; after an error it may have been.
    ///
    /// # Errors
    /// [`RequestRefusal::NotHeard`](crate::RequestRefusal::NotHeard); [`RequestRefusal::TooMuch`](crate::RequestRefusal::TooMuch)
    /// beyond [`MAX_WORD_BYTES`](crate::limits::MAX_WORD_BYTES), where nothing is sent; that the peer cannot be reached.
    pub fn tell(&self, word: &[u8], deadline: Instant) -> Result<(), TransportError> {
        if word.len() > MAX_WORD_BYTES {
            return Err(RequestRefusal::TooMuch.into());
        }
        let request = word_request(&self.words, word);
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let heard =
            |body: &[u8]| if body.is_empty() { Ok(()) } else { Err(Malformed("answer to a word")) };
        self.port.ask(&request, FrameKind::Heard, &patience, heard)
    }

    /// Its data port.
    pub(crate) fn port(&self) -> &Pool {
        &self.port
    }

    /// Its process, if that is of this host and a lane needs to know.
    pub(crate) fn process(&self) -> Option<&LocalSource> {
        self.process.as_deref()
    }

    /// The lanes to it, the preferred first.
    pub(super) fn lanes(&self) -> impl Iterator<Item = &dyn Endpoint> {
        self.lanes.iter().map(|lane| &**lane)
    }

    /// The lane that is taken if it carries what is read.
    fn preferred(&self) -> &dyn Endpoint {
        &*self.lanes[self.preferred]
    }

    /// The first lane that carries an export.
    pub(crate) fn endpoint(
        &self,
        export: ExportId,
        description: &ExportDescription,
    ) -> &dyn Endpoint {
        &*self.lanes[self.place(export, description)]
    }

    fn place(&self, export: ExportId, description: &ExportDescription) -> usize {
        let carries = self.lanes.iter().position(|lane| lane.carries(export, description));
        carries.unwrap_or(self.preferred)
    }

    /// What takes writes into memory of the peer: a lane, or its data port.
    pub(crate) fn writer(&self) -> &dyn WriteEndpoint {
        self.lanes.iter().find_map(|lane| lane.writer()).unwrap_or(&self.port)
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
        let start = wire::begin(&mut request, FrameKind::Digest);
        wire::put(&mut request, &[export.0, generation]);
        extents.iter().for_each(|placed| wire::put_placed(&mut request, placed));
        wire::finish(&mut request, start);
        if extents.len() > crate::base::limits::MAX_EXTENTS {
            return Err(RequestRefusal::TooMuch.into());
        }
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        let digests =
            self.port.ask(&request, FrameKind::Digests, &patience, wire::decode_digests)?;
        if digests.len() != extents.len() {
            return Err(TransportError::Protocol { addr: self.addr, what: "number of digests" });
        }
        Ok(digests)
    }

    /// The note of an export, or `None` as long as it has none.
    ///
    /// # Errors
    /// What [`Peer::digests`] may return: a fenced export refuses as an unknown one does.
    pub fn note(
        &self,
        export: ExportId,
        generation: u64,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, TransportError> {
        let request = wire::named(FrameKind::Note, export, generation);
        let patience = Patience { deadline: Some(deadline), ..Patience::default() };
        self.port.ask(&request, FrameKind::Noted, &patience, wire::decode_noted)
    }

    /// The note of an export, or as long as there is none its early note; waits so long for either, at most
    /// [`MAX_NOTE_WAIT`](crate::limits::MAX_NOTE_WAIT). `None` if neither came.
    ///
    /// # Errors
    /// What [`Peer::digests`] may return; [`TransportError::Cancelled`] once `cancel` is raised.
    pub fn early_note(
        &self,
        export: ExportId,
        generation: u64,
        wait: Duration,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<Option<Vec<u8>>, TransportError> {
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let request = wire::numbered(FrameKind::EarlyNote, export, generation, wait);
        let patience =
            Patience { deadline: Some(deadline), cancel: Some(cancel), ..Patience::default() };
        self.port.ask(&request, FrameKind::Noted, &patience, wire::decode_noted)
    }

    /// Waits until the peer serves an export.
    ///
    /// # Errors
    /// [`TransportError::Timeout`] if that takes longer, [`TransportError::Cancelled`], or what keeps the peer from
    /// being asked.
    pub fn wait_for(
        &self,
        export: ExportId,
        generation: u64,
        deadline: Instant,
        cancel: &AtomicBool,
    ) -> Result<(), TransportError> {
        let patience =
            Patience { deadline: Some(deadline), cancel: Some(cancel), ..Patience::default() };
        let mut pause = Duration::from_micros(500);
        loop {
            match self.describe_anew(export, generation, &patience) {
                Err(TransportError::Refused(RequestRefusal::UnknownExport)) => {
                    patience.check("waiting for the peer to serve it")?;
                    // A port does not tell when an export comes: ask again.
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
                described => return described.map(drop),
            }
        }
    }

    /// What the source says of an export; asked once. A source of this host is asked over a connection
    /// on which the kernel vouches for its process: only then may it say where its memory lies.
    pub(crate) fn describe(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<Arc<ExportDescription>, TransportError> {
        if let Some(known) = lock(&self.described).get(&(export, generation)) {
            return Ok(Arc::clone(known));
        }
        self.describe_anew(export, generation, patience)
    }

    /// [`Peer::describe`] that asks in any case: the source refuses what it has fenced.
    pub(super) fn describe_anew(
        &self,
        export: ExportId,
        generation: u64,
        patience: &Patience<'_>,
    ) -> Result<Arc<ExportDescription>, TransportError> {
        let description = match &self.process {
            Some(process) => process.describe(export, generation, patience),
            None => self.port.describe(export, generation, patience),
        }?;
        self.lanes.iter().try_for_each(|lane| lane.check(&description))?;
        let mut lanes = self.lanes.iter();
        lanes.try_for_each(|lane| lane.prepare(export, generation, &description, patience))?;
        let description = Arc::new(description);
        let mut described = lock(&self.described);
        if described.len() >= MAX_DESCRIPTIONS {
            described.clear();
        }
        described.insert((export, generation), Arc::clone(&description));
        Ok(description)
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer").field("addr", &self.addr).field("way", &self.way()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::base::limits::MAX_EXTENTS;
    use crate::memory::computed::LeftAsItIs;
    use crate::piece::extent::Extent;
    use crate::{Filling, MemoryKind, Region};
    use std::time::Duration;

    fn server() -> DataServer {
        DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(20)
    }

    fn by(way: Way, server: &DataServer) -> Peer {
        let auth = Auth::default();
        match way {
            Way::Reference => Peer::connect_within(server, &auth, soon()),
            way => Peer::connect_by(way, server.addr(), &auth, soon()),
        }
        .unwrap()
    }

    #[test]
    fn a_description_is_asked_for_once_and_tells_what_the_way_may_know() {
        let server = server();
        let regions = [3, 5].map(|len| Region::allocate(len).unwrap());
        let exports = server.exports();
        let whole = exports.expose(4, regions.to_vec());
        let export = ExportId::random();
        let filling = Arc::new(Filling::new(&regions[1..]));
        exports.expose_filling(export, 5, regions[1..].to_vec(), filling);
        let word = exports.get(whole).unwrap().word_address();
        let own = Some(std::process::id() as i32);
        let made = exports.expose(1, vec![Region::computed(3, Arc::new(LeftAsItIs))]);
        for (way, pid, computed) in
            [(Way::Tcp, None, true), (Way::Direct, own, false), (Way::Reference, None, true)]
        {
            let peer = by(way, &server);
            let near = peer.preferred();
            let process = peer.process().map(LocalSource::pid);
            assert_eq!((near.way(), process, peer.way()), (way, pid, way));
            assert_eq!(near.asks_ahead(), way == Way::Tcp, "{way:?}");
            near.verify().unwrap();
            let describe =
                |export, generation| peer.describe(export, generation, &Patience::default());
            let found = describe(whole, 4).unwrap();
            let lens = found.regions.iter().map(|region| (region.len, region.kind));
            assert!(lens.eq([3, 5].map(|len| (len, Some(MemoryKind::Host)))), "{way:?}");
            assert!(!found.filling && near.carries(whole, &found));
            let addresses = [word, regions[0].address(), regions[1].address()];
            let addresses = addresses.map(u64::to_le_bytes).concat();
            let offered = found.descriptors.iter().map(|descriptor| &descriptor.bytes);
            assert!(offered.eq(pid.map(|_| &addresses)), "{way:?}: to those of this host alone");
            assert_eq!(near.carries(made, &describe(made, 1).unwrap()), computed, "{way:?}");
            assert!(describe(export, 5).unwrap().filling);
            let refused = |export, generation| describe(export, generation).map(drop).unwrap_err();
            assert_eq!(refused(whole, 5), RequestRefusal::StaleGeneration.into());
            assert_eq!(refused(ExportId(whole.0 ^ 1), 4), RequestRefusal::UnknownExport.into());
            assert_eq!(lock(&peer.described).len(), 3, "what was refused is not remembered");
            assert!(Arc::ptr_eq(&describe(whole, 4).unwrap(), &found), "not asked again");
        }
        exports.fence(whole);
        let refused = by(Way::Reference, &server).describe(whole, 4, &Patience::default());
        assert_eq!(refused.map(drop), Err(RequestRefusal::StaleGeneration.into()));
    }

    #[test]
    fn so_many_descriptions_are_remembered() {
        let server = server();
        let peer = by(Way::Reference, &server);
        let exports: Vec<_> =
            (0..=MAX_DESCRIPTIONS).map(|_| server.exports().expose(1, Vec::new())).collect();
        for (number, export) in exports.into_iter().enumerate() {
            peer.describe(export, 1, &Patience::default()).unwrap();
            let expected = if number < MAX_DESCRIPTIONS { number + 1 } else { 1 };
            assert_eq!(lock(&peer.described).len(), expected);
        }
    }

    /// One region that is made when it is read is enough, once it is known of.
    #[test]
    fn the_way_to_an_export_is_the_first_that_carries_it() {
        let server = server();
        let held = Region::allocate(3).unwrap();
        let made = Region::computed(3, Arc::new(LeftAsItIs));
        let [plain, mixed] = [vec![held.clone()], vec![held, made]];
        let (plain, mixed) = (server.exports().expose(1, plain), server.exports().expose(1, mixed));
        let [tcp, direct, within] =
            [Way::Tcp, Way::Direct, Way::Reference].map(|way| by(way, &server));
        assert_eq!(direct.way_to(mixed, 1), Way::Direct, "nothing is known of it");
        for peer in [&tcp, &direct, &within] {
            assert_eq!(peer.addr(), server.addr());
            for export in [plain, mixed] {
                peer.describe(export, 1, &Patience::default()).unwrap();
            }
        }
        let told = |peer: &Peer, export| (peer.way_to(export, 1), peer.why(export, 1).to_owned());
        let why = |way, why: &str| (way, why.to_owned());
        assert_eq!(told(&tcp, plain), why(Way::Tcp, "TCP was demanded"));
        assert_eq!(told(&tcp, mixed), why(Way::Tcp, "TCP was demanded"));
        let other = "another process of this host and user";
        assert_eq!(told(&direct, plain), why(Way::Direct, other));
        assert_eq!(told(&direct, mixed), why(Way::Tcp, "made when it is read"));
        assert_eq!(told(&within, plain), why(Way::Reference, "this very process"));
        assert_eq!(told(&within, mixed), why(Way::Reference, "this very process"));
        assert_eq!(direct.way_to(mixed, 2), Way::Direct, "of another generation nothing is known");
        let said = format!("{tcp:?}");
        assert_eq!(said, format!("Peer {{ addr: {}, way: Tcp }}", server.addr()));
    }

    #[test]
    fn as_many_digests_as_extents_may_be_asked_for() {
        let server = server();
        let export = server.exports().expose(1, vec![Region::from_bytes(b"weights").unwrap()]);
        let peer = by(Way::Tcp, &server);
        let placed = |number: usize| {
            let offset = number as u64 % 7;
            let extent = Extent { region: 0, offset, row_bytes: 1, rows: 1, pitch: 0 };
            PlacedExtent { extent, position: number as u64, position_pitch: 0 }
        };
        let all: Vec<_> = (0..=MAX_EXTENTS).map(placed).collect();
        for count in [0, 1, 2, MAX_EXTENTS] {
            let found = peer.digests(export, 1, &all[..count], soon()).unwrap();
            let expected =
                (0..count).map(|n| crate::digest_at(n as u64, &b"weights"[n % 7..n % 7 + 1]));
            assert!(found.into_iter().eq(expected), "{count}");
        }
        assert_eq!(peer.digests(export, 1, &all, soon()), Err(RequestRefusal::TooMuch.into()));
    }

    /// And of all extents: the first of them is there from the beginning.
    #[test]
    fn every_extent_that_was_asked_for_is_waited_for() {
        use crate::base::limits::MIN_UNIT_BYTES as UNIT;
        use crate::{Filling, HoldPoint, Holds, StridedCopy};
        let server = server();
        let memory = vec![Region::allocate(3 * UNIT as usize).unwrap()];
        let (filling, export) = (Arc::new(Filling::new(&memory)), ExportId::random());
        filling.begin([&[StridedCopy::contiguous(0, 0, 0, 0, 3 * UNIT)][..]].into_iter());
        filling.arrived(0, 0, UNIT);
        server.exports().expose_filling(export, 1, memory, Arc::clone(&filling));
        let come = std::sync::Once::new();
        let holds = Holds::new(move |point| {
            if point == HoldPoint::Waiting {
                come.call_once(|| filling.arrived(0, 2 * UNIT, UNIT));
            }
        });
        server.exports().hold(export, holds);
        let peer = by(Way::Tcp, &server);
        let extent =
            |unit| Extent { region: 0, offset: unit * UNIT, row_bytes: 1, rows: 1, pitch: 1 };
        let extents = [0, 2].map(extent).into_iter();
        let patience = Patience { deadline: Some(soon()), ..Patience::default() };
        assert_eq!(peer.port().wait_final(export, 1, extents, &patience), Ok(vec![0b101]));
    }
}
