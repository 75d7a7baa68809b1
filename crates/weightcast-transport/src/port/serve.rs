//! One connection of the data port: a handshake, then requests answered in order.

use crate::base::error::RequestRefusal;
use crate::base::holds::HoldPoint;
use crate::base::id::ExportId;
use crate::base::limits::{HANDSHAKE_DEADLINE, MAX_NOTE_WAIT, SEND_BYTES};
use crate::export::lending::Lending;
use crate::export::served::Export;
use crate::export::table::ExportTable;
use crate::lane;
use crate::memory::kind::MemoryKind;
use crate::memory::region::Region;
use crate::piece::extent::{Extent, PlacedExtent};
use crate::piece::filling::Filling;
use crate::port::answer_writer::AnswerWriter;
use crate::port::bounds;
use crate::port::ear::Ear;
use crate::port::request_reader::RequestReader;
use crate::port::seats::ConnectionSeat;
use crate::port::slices::{self, DigestTurns};
use crate::port::write_side::WriteSide;
use crate::wire::credentials::send_files;
use crate::wire::description::{ExportDescription, RegionDescription, put_description};
use crate::wire::handshake::{PROOF_BYTES, SourceSide, full};
use crate::wire::local_name::LocalName;
use crate::wire::mac::{Channel, MacKey, Nonces, WordKey};
use crate::wire::socket::Socket;
use crate::wire::word_frame::decode_word;
use crate::wire::{self, FrameKind, HEADER_BYTES, Header, Malformed, WireCodec};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lets the peer in if it proves the token and there is room, or says why not.
///
/// # Errors
/// Whatever means that the connection must be closed.
pub(crate) fn admit(
    mut socket: &Socket,
    key: &MacKey,
    channel: Channel,
    has_room: impl FnOnce() -> bool,
) -> io::Result<Nonces> {
    let until = Instant::now() + HANDSHAKE_DEADLINE;
    let side = SourceSide::new(channel);
    socket.write_all(&side.hello())?;
    let mut proof = [0; PROOF_BYTES];
    let mut filled = 0;
    while filled < proof.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut proof[filled..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => filled += count,
        }
    }
    let (verdict, judged) = side.judge(key, &proof);
    if judged.is_ok() && !has_room() {
        socket.write_all(&full())?;
        return Err(ErrorKind::QuotaExceeded.into());
    }
    socket.write_all(&verdict)?;
    judged.map_err(|_| ErrorKind::PermissionDenied)?;
    Ok(side.nonces(&proof))
}

/// What all connections of a port share.
pub(crate) struct Desk {
    pub(crate) exports: Arc<ExportTable>,
    /// The Unix socket beside the port.
    pub(crate) name: Option<LocalName>,
    pub(crate) turns: DigestTurns,
    /// Proves words.
    pub(crate) words: WordKey,
    pub(crate) ear: Ear,
}

impl Desk {
    /// That of a port that serves nothing yet, and where nobody listens.
    pub(crate) fn new(name: Option<LocalName>, words: WordKey) -> Self {
        let (exports, turns, ear) = (Arc::default(), DigestTurns::new(), Ear::default());
        Self { exports, name, turns, words, ear }
    }
}

/// An admitted connection.
pub(crate) struct Connection<'a> {
    seat: &'a ConnectionSeat,
    socket: &'a Arc<Socket>,
    desk: &'a Desk,
    input: RequestReader,
    output: AnswerWriter,
    writes: WriteSide,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(seat: &'a ConnectionSeat, desk: &'a Desk, nonces: Nonces) -> Self {
        let (input, output) = (RequestReader::new(), AnswerWriter::default());
        let writes = WriteSide::new(nonces, seat.host());
        Self { seat, socket: &seat.socket, desk, input, output, writes }
    }

    /// Answers requests until the peer closes, or a newcomer gets the place of an idle one.
    ///
    /// # Errors
    /// Whatever means that the connection must be closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        loop {
            // Answers wait only for requests that are already here, and while they are few.
            if !self.input.has_more() || self.output.pending.len() > SEND_BYTES {
                self.output.flush(self.seat)?;
            }
            if !self.input.has_more() {
                self.seat.rest(Instant::now());
                self.output.rest();
                if !self.input.wait(self.socket)? || !self.seat.work(Instant::now()) {
                    return Ok(());
                }
            }
            let (header, body) = self.input.frame(self.socket)?;
            if header.kind == FrameKind::Write {
                self.seat.moved(body.len());
                let written =
                    self.writes.write(&self.desk.exports, header, body).map_err(invalid)?;
                let answer = Header::new(FrameKind::Written, 0);
                let answer = written.map_or_else(Header::refusal, |()| answer);
                self.output.pending.extend_from_slice(&answer.encode());
                continue;
            }
            if header.kind == FrameKind::Word {
                let word = decode_word(&self.desk.words, body).map_err(invalid)?;
                let answer = match word.is_some_and(|word| self.desk.ear.hear(word)) {
                    true => Header::new(FrameKind::Heard, 0),
                    false => Header::refusal(RequestRefusal::NotHeard),
                };
                self.output.pending.extend_from_slice(&answer.encode());
                continue;
            }
            let request = Request::decode(header.kind, body).map_err(invalid)?;
            match WireCodec::of(header) {
                Err(refusal) if header.kind == FrameKind::Read => self.refuse(refusal),
                _ => self.answer(request)?,
            }
        }
    }

    fn answer(&mut self, request: Request) -> io::Result<()> {
        let answered = match request {
            Request::Identify => self.identify(),
            Request::Describe(id, generation) => self.describe(id, generation),
            Request::Lend(id, generation) => return self.lend(id, generation),
            Request::Note(id, generation) => match self.open(id, generation, |_| Ok(())) {
                Ok((export, ())) => {
                    let note = export.notes.note();
                    // A slow reader of the note must not hold the regions.
                    drop(export);
                    return self.note(note);
                }
                Err(refusal) => Err(refusal),
            },
            Request::EarlyNote(id, generation, wait) => {
                match self.open(id, generation, |_| Ok(())) {
                    Ok((export, ())) => match self.early_note(export, wait)? {
                        Ok(note) => return self.note(note),
                        Err(refusal) => Err(refusal),
                    },
                    Err(refusal) => Err(refusal),
                }
            }
            Request::Read(ask) => match self.open_final(&ask)? {
                Ok((export, bytes)) => return self.send(&export, &ask.extents, bytes),
                Err(refusal) => Err(refusal),
            },
            Request::Await(ask) => match self.open_final(&ask)? {
                Ok((export, _)) => self.progress(&export),
                Err(refusal) => Err(refusal),
            },
            Request::News(id, generation, known) => match self.open_news(id, generation, known)? {
                Ok(export) => self.progress(&export),
                Err(refusal) => Err(refusal),
            },
            Request::Digest(ask) => {
                let check = |export: &Export| bounds::of_digest(export.regions(), &ask.extents);
                match self.open(ask.export, ask.generation, check) {
                    Ok((export, _)) => self.digest(&export, &ask.extents)?,
                    Err(refusal) => Err(refusal),
                }
            }
        };
        if let Err(refusal) = answered {
            self.refuse(refusal);
        }
        Ok(())
    }

    fn refuse(&mut self, refusal: RequestRefusal) {
        self.output.pending.extend_from_slice(&Header::refusal(refusal).encode());
    }

    fn identify(&mut self) -> Result<(), RequestRefusal> {
        let out = &mut self.output.pending;
        let start = wire::begin(out, FrameKind::Identity);
        wire::put_identity(out, self.desk.name);
        wire::finish(out, start);
        Ok(())
    }

    fn describe(&mut self, id: ExportId, generation: u64) -> Result<(), RequestRefusal> {
        let (export, ()) = self.open(id, generation, |_| Ok(()))?;
        let regions = export.regions().iter();
        let description = ExportDescription {
            filling: export.progress().is_some_and(|filling| !filling.is_whole()),
            regions: regions
                .map(|region| RegionDescription {
                    len: region.len() as u64,
                    kind: Some(region.kind()),
                })
                .collect(),
            descriptors: lane::offers(&export, self.socket),
        };
        let out = &mut self.output.pending;
        let start = wire::begin(out, FrameKind::Description);
        put_description(out, &description);
        wire::finish(out, start);
        Ok(())
    }

    /// Hands files of shared memory to a process of this host and user; to anybody else, or of other memory, none.
    ///
    /// # Errors
    /// If the connection broke, or the kernel passes no files.
    fn lend(&mut self, id: ExportId, generation: u64) -> io::Result<()> {
        let export = match self.open(id, generation, |_| Ok(())) {
            Ok((export, ())) => export,
            Err(refusal) => {
                self.refuse(refusal);
                return Ok(());
            }
        };
        let lent = match export.lending() {
            Lending::Whole(lent) if self.socket.is_local() => Some(lent),
            _ => None,
        };
        // Files go with the first byte that follows.
        self.output.flush(self.seat)?;
        let mut answer = Vec::new();
        let start = wire::begin(&mut answer, FrameKind::Lent);
        wire::put_lent(&mut answer, lent.map_or(&[], |lent| lent.places()));
        wire::finish(&mut answer, start);
        let files = lent.map_or_else(Vec::new, |lent| lent.files());
        let header = &answer[..HEADER_BYTES];
        let sent = send_files(self.socket.as_fd(), header, &files)
            // The kernel passes no more files, and nothing has gone: whoever asked reads in another way.
            .or_else(|_| send_files(self.socket.as_fd(), header, &[]))?;
        self.output.send(self.seat, &answer[sent..])
    }

    /// Finds an export and checks a request against it. A fenced one is of no generation.
    fn open<T>(
        &self,
        id: ExportId,
        generation: u64,
        check: impl FnOnce(&Export) -> Result<T, RequestRefusal>,
    ) -> Result<(Arc<Export>, T), RequestRefusal> {
        let export = self.desk.exports.get(id)?;
        if export.generation() != generation || !export.is_served() {
            return Err(RequestRefusal::StaleGeneration);
        }
        let checked = check(&export)?;
        Ok((export, checked))
    }

    /// Finds an export whose asked extents are final, waiting for them if it is being filled.
    fn open_final(
        &mut self,
        ask: &wire::Ask<Extent>,
    ) -> io::Result<Result<(Arc<Export>, u64), RequestRefusal>> {
        let opened = self.open(ask.export, ask.generation, |export| {
            bounds::of_read(export.regions(), &ask.extents)
        });
        match opened {
            Ok((export, bytes)) => {
                let waited = self.wait_final(&export, &ask.extents)?;
                Ok(waited.map(|()| (export, bytes)))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
    }

    /// Finds an export of which more units are final than are known, or all, waiting for them.
    fn open_news(
        &mut self,
        id: ExportId,
        generation: u64,
        known: u64,
    ) -> io::Result<Result<Arc<Export>, RequestRefusal>> {
        let export = match self.open(id, generation, |_| Ok(())) {
            Ok((export, ())) => export,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let waited = self.wait_until(&export, |wanted| export.wait_news(known, wanted))?;
        Ok(waited.map(|()| export))
    }

    /// Waits until checked extents of an export that is still being filled are final, as long as
    /// the peer is there. What was answered before goes out first.
    ///
    /// # Errors
    /// If the connection broke; a refusal if the export was fenced.
    fn wait_final(
        &mut self,
        export: &Export,
        extents: &[Extent],
    ) -> io::Result<Result<(), RequestRefusal>> {
        if export.progress().is_none() {
            return Ok(Ok(()));
        }
        let runs = |e: &Extent| {
            let (region, len) = (e.region, e.row_bytes);
            e.runs().map(move |offset| (region, offset, len))
        };
        let ranges = extents.iter().flat_map(runs);
        self.wait_until(export, |wanted| export.wait_final(ranges.clone(), wanted))
    }

    /// Waits by a function that gives up, and says so, once nobody wants it any more.
    fn wait_until(
        &mut self,
        export: &Export,
        wait: impl Fn(&dyn Fn() -> bool) -> bool,
    ) -> io::Result<Result<(), RequestRefusal>> {
        if wait(&|| false) {
            return Ok(Ok(()));
        }
        self.output.flush(self.seat)?;
        let wanted = || {
            export.stop_at(HoldPoint::Waiting);
            self.socket.is_connected()
        };
        if wait(&wanted) {
            Ok(Ok(()))
        } else if export.is_served() {
            Err(ErrorKind::ConnectionAborted.into())
        } else {
            Ok(Err(RequestRefusal::StaleGeneration))
        }
    }

    /// Which units of an export are final.
    fn progress(&mut self, export: &Export) -> Result<(), RequestRefusal> {
        let bits = export.progress().map(Filling::bits).unwrap_or_default();
        let out = &mut self.output.pending;
        let start = wire::begin(out, FrameKind::Progress);
        out.extend_from_slice(&bits);
        wire::finish(out, start);
        Ok(())
    }

    /// Streams checked extents; the verdict is only made once the kernel has all the bytes.
    fn send(&mut self, export: &Export, extents: &[Extent], bytes: u64) -> io::Result<()> {
        let _serving = export.serve(self.socket);
        let header = Header::new(FrameKind::Data, bytes as usize);
        export.stop_at(HoldPoint::Taking);
        self.output.pending.extend_from_slice(&header.encode());
        for extent in extents {
            let region = &export.regions()[extent.region as usize];
            if region.kind() != MemoryKind::Host {
                self.send_made(export, region, extent)?;
                continue;
            }
            for offset in extent.runs() {
                let address = region.address() + offset;
                // SAFETY: the extent is checked to lie in the region, which the export keeps
                // alive beyond this function, and `finish` leaves nothing unsent.
                unsafe { self.output.add(self.seat, export, address, extent.row_bytes as usize) }?;
            }
        }
        // SAFETY: as above.
        unsafe { self.output.finish(self.seat, export) }?;
        export.stop_at(HoldPoint::Judging);
        let end = Header::end(export.is_served());
        self.output.pending.extend_from_slice(&end.encode());
        Ok(())
    }

    /// Sends a checked extent whose bytes have no address: they are read a batch at a time.
    fn send_made(&mut self, export: &Export, region: &Region, extent: &Extent) -> io::Result<()> {
        for offset in extent.runs() {
            let start = offset as usize;
            let make = |at: usize, bytes: &mut [u8]| {
                region.read_at(start + at, bytes).expect("checked");
            };
            self.output.make(self.seat, export, extent.row_bytes as usize, make)?;
        }
        Ok(())
    }

    /// What is known of an export, waiting for it a while. What was answered before goes out first.
    ///
    /// # Errors
    /// If the connection broke; a refusal if the export was fenced.
    fn early_note(
        &mut self,
        export: Arc<Export>,
        wait: Duration,
    ) -> io::Result<Result<Option<Arc<[u8]>>, RequestRefusal>> {
        if let Some(note) = export.notes.known() {
            return Ok(Ok(Some(note)));
        }
        self.output.flush(self.seat)?;
        let until = Instant::now() + wait.min(MAX_NOTE_WAIT);
        let wanted = || Instant::now() < until && export.is_served() && self.socket.is_connected();
        let note = export.notes.wait_known(wanted);
        match note.is_some() || export.is_served() {
            true => Ok(Ok(note)),
            false => Ok(Err(RequestRefusal::StaleGeneration)),
        }
    }

    fn note(&mut self, note: Option<Arc<[u8]>>) -> io::Result<()> {
        let body = 1 + note.as_ref().map_or(0, |note| note.len());
        let out = &mut self.output.pending;
        out.extend_from_slice(&Header::new(FrameKind::Noted, body).encode());
        out.push(u8::from(note.is_some()));
        note.map_or(Ok(()), |note| self.output.send(self.seat, &note))
    }

    /// # Errors
    /// If the connection broke; a refusal if the export was fenced.
    fn digest(
        &mut self,
        export: &Export,
        extents: &[PlacedExtent],
    ) -> io::Result<Result<(), RequestRefusal>> {
        // What was answered before does not wait for it.
        self.output.flush(self.seat)?;
        let _serving = export.serve(self.socket);
        let wanted = || export.is_served() && self.socket.is_connected();
        let digests = slices::digests(export, extents, &self.desk.turns, wanted);
        if !export.is_served() {
            return Ok(Err(RequestRefusal::StaleGeneration));
        }
        let digests = digests.ok_or(ErrorKind::ConnectionAborted)?;
        let out = &mut self.output.pending;
        let start = wire::begin(out, FrameKind::Digests);
        digests.iter().for_each(|digest| out.extend_from_slice(&digest.to_bytes()));
        wire::finish(out, start);
        Ok(Ok(()))
    }
}

fn invalid(malformed: Malformed) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, malformed.0)
}

/// A request that only asks, decoded.
enum Request {
    Identify,
    Describe(ExportId, u64),
    Lend(ExportId, u64),
    Note(ExportId, u64),
    EarlyNote(ExportId, u64, Duration),
    Read(wire::Ask<Extent>),
    Digest(wire::Ask<PlacedExtent>),
    Await(wire::Ask<Extent>),
    News(ExportId, u64, u64),
}

impl Request {
    fn decode(kind: FrameKind, body: &[u8]) -> Result<Self, Malformed> {
        match kind {
            FrameKind::Identify if body.is_empty() => Ok(Self::Identify),
            FrameKind::Describe => wire::decode_named(body).map(|(id, g)| Self::Describe(id, g)),
            FrameKind::Lend => wire::decode_named(body).map(|(id, g)| Self::Lend(id, g)),
            FrameKind::Note => wire::decode_named(body).map(|(id, g)| Self::Note(id, g)),
            FrameKind::EarlyNote => wire::decode_numbered(body)
                .map(|(id, g, wait)| Self::EarlyNote(id, g, Duration::from_millis(wait))),
            FrameKind::News => {
                wire::decode_numbered(body).map(|(id, g, known)| Self::News(id, g, known))
            }
            FrameKind::Read => wire::decode_read(body).map(Self::Read),
            FrameKind::Digest => wire::decode_digest(body).map(Self::Digest),
            FrameKind::Await => wire::decode_read(body).map(Self::Await),
            _ => Err(Malformed("not a request")),
        }
    }
}

#[cfg(test)]
mod late;

#[cfg(test)]
mod tests;
