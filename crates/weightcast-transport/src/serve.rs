//! One connection of the data port: a handshake, then requests answered in order.

use crate::copy::end;
use crate::digest::Digest;
use crate::error::Refusal;
use crate::export::Export;
use crate::exports::{ExportId, ExportTable};
use crate::filling::Filling;
use crate::handshake::{PROOF_BYTES, SourceSide};
use crate::input::Input;
use crate::limits::{HANDSHAKE_DEADLINE, MAX_DIGEST_BYTES, MAX_READ_BYTES, SEND_BYTES};
use crate::output::Output;
use crate::region::Region;
use crate::seats::Seat;
use crate::secret::MacKey;
use crate::wire::{self, Extent, Header, Kind, Malformed, PlacedExtent};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Instant;

/// Lets the peer in, or says why not.
///
/// # Errors
/// Whatever means that the connection must be closed.
pub(crate) fn admit(mut socket: &TcpStream, key: &MacKey) -> io::Result<()> {
    let until = Instant::now() + HANDSHAKE_DEADLINE;
    let side = SourceSide::new();
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
    socket.write_all(&verdict)?;
    judged.map_err(|_| ErrorKind::PermissionDenied.into())
}

/// An admitted connection.
pub(crate) struct Connection<'a> {
    seat: &'a Seat,
    socket: &'a Arc<TcpStream>,
    exports: &'a ExportTable,
    input: Input,
    output: Output,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(seat: &'a Seat, exports: &'a ExportTable) -> Self {
        let (input, output) = (Input::new(), Output::default());
        Self { seat, socket: &seat.socket, exports, input, output }
    }

    /// Answers requests until the peer closes, or a newcomer gets the place of an idle one.
    ///
    /// # Errors
    /// Whatever means that the connection must be closed.
    pub(crate) fn run(mut self) -> io::Result<()> {
        loop {
            // Answers wait only for requests that are already here, and while they are few.
            if !self.input.has_more() || self.output.pending.len() > SEND_BYTES {
                self.output.flush(self.socket)?;
            }
            if !self.input.has_more() {
                self.seat.rest();
                if !self.input.wait(self.socket)? || !self.seat.work() {
                    return Ok(());
                }
            }
            let (header, body) = self.input.frame(self.socket)?;
            let request = Request::decode(header.kind, body)
                .map_err(|malformed| io::Error::new(ErrorKind::InvalidData, malformed.0))?;
            self.answer(request)?;
        }
    }

    fn answer(&mut self, request: Request) -> io::Result<()> {
        let answered = match request {
            Request::Identify => self.identify(),
            Request::Describe(id, generation) => self.describe(id, generation),
            Request::Note(id, generation) => match self.open(id, generation, |_| Ok(())) {
                Ok((export, ())) => return self.note(export),
                Err(refusal) => Err(refusal),
            },
            Request::Read(ask) => match self.open_final(&ask)? {
                Ok((export, bytes)) => return self.send(&export, &ask.extents, bytes),
                Err(refusal) => Err(refusal),
            },
            Request::Await(ask) => match self.open_final(&ask)? {
                Ok((export, _)) => self.progress(&export),
                Err(refusal) => Err(refusal),
            },
            Request::Digest(ask) => self
                .open(ask.export, ask.generation, |export| {
                    let extents = ask.extents.iter().map(|placed| &placed.extent);
                    check(export, extents, MAX_DIGEST_BYTES)
                })
                .and_then(|(export, _)| self.digest(&export, &ask.extents)),
        };
        if let Err(refusal) = answered {
            self.output.pending.extend_from_slice(&Header::refusal(refusal).encode());
        }
        Ok(())
    }

    fn identify(&mut self) -> Result<(), Refusal> {
        let out = &mut self.output.pending;
        let start = wire::begin(out, Kind::Identity);
        wire::put_identity(out, &self.exports.identity());
        wire::finish(out, start);
        Ok(())
    }

    /// The owner hands out its own addresses; it never takes one from a peer.
    fn describe(&mut self, id: ExportId, generation: u64) -> Result<(), Refusal> {
        let (export, ()) = self.open(id, generation, |_| Ok(()))?;
        let out = &mut self.output.pending;
        let start = wire::begin(out, Kind::Description);
        wire::put(out, &[export.word_address(), u64::from(export.progress().is_some())]);
        for region in export.regions() {
            wire::put(out, &[region.address(), region.len() as u64]);
        }
        wire::finish(out, start);
        Ok(())
    }

    /// Finds an export and checks a request against it. A fenced one is of no generation.
    fn open<T>(
        &self,
        id: ExportId,
        generation: u64,
        check: impl FnOnce(&Export) -> Result<T, Refusal>,
    ) -> Result<(Arc<Export>, T), Refusal> {
        let export = self.exports.get(id)?;
        if export.generation() != generation || !export.is_served() {
            return Err(Refusal::StaleGeneration);
        }
        let checked = check(&export)?;
        Ok((export, checked))
    }

    /// Finds an export whose asked extents are final, waiting for them if it is being filled.
    fn open_final(
        &mut self,
        ask: &wire::Ask<Extent>,
    ) -> io::Result<Result<(Arc<Export>, u64), Refusal>> {
        let opened = self.open(ask.export, ask.generation, |export| {
            check(export, ask.extents.iter(), MAX_READ_BYTES)
        });
        match opened {
            Ok((export, bytes)) => {
                let waited = self.wait_final(&export, &ask.extents)?;
                Ok(waited.map(|()| (export, bytes)))
            }
            Err(refusal) => Ok(Err(refusal)),
        }
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
    ) -> io::Result<Result<(), Refusal>> {
        if export.progress().is_none() {
            return Ok(Ok(()));
        }
        let rows = |e: &Extent| {
            let (region, offset, len, pitch) = (e.region, e.offset, e.row_bytes, e.pitch);
            (0..e.rows).map(move |row| (region, offset + row * pitch, len))
        };
        let ranges = extents.iter().flat_map(rows);
        if export.wait_final(ranges.clone(), || false) {
            return Ok(Ok(()));
        }
        self.output.flush(self.socket)?;
        if export.wait_final(ranges, || is_connected(self.socket)) {
            Ok(Ok(()))
        } else if export.is_served() {
            Err(ErrorKind::ConnectionAborted.into())
        } else {
            Ok(Err(Refusal::StaleGeneration))
        }
    }

    /// Which units of an export are final.
    fn progress(&mut self, export: &Export) -> Result<(), Refusal> {
        let bits = export.progress().map(Filling::bits).unwrap_or_default();
        let out = &mut self.output.pending;
        let start = wire::begin(out, Kind::Progress);
        out.extend_from_slice(&bits);
        wire::finish(out, start);
        Ok(())
    }

    /// Streams checked extents; the verdict is only made once the kernel has all the bytes.
    fn send(&mut self, export: &Export, extents: &[Extent], bytes: u64) -> io::Result<()> {
        let _serving = export.serve(self.socket);
        let header = Header::new(Kind::Data, bytes as usize);
        self.output.pending.extend_from_slice(&header.encode());
        for extent in extents.iter().filter(|extent| extent.row_bytes > 0) {
            let region = &export.regions()[extent.region as usize];
            if region.is_computed() {
                self.send_computed(export, region, extent)?;
                continue;
            }
            let base = region.address() + extent.offset;
            for row in 0..extent.rows {
                let address = base + row * extent.pitch;
                // SAFETY: the extent is checked to lie in the region, which the export keeps
                // alive beyond this function, and `finish` leaves nothing unsent.
                unsafe {
                    self.output.add(self.socket, export, address, extent.row_bytes as usize)
                }?;
            }
        }
        // SAFETY: as above.
        unsafe { self.output.finish(self.socket, export) }?;
        let end = Header::end(export.is_served());
        self.output.pending.extend_from_slice(&end.encode());
        Ok(())
    }

    /// Makes the bytes of a checked extent and sends them, a batch at a time.
    fn send_computed(
        &mut self,
        export: &Export,
        region: &Region,
        extent: &Extent,
    ) -> io::Result<()> {
        for row in 0..extent.rows {
            let start = (extent.offset + row * extent.pitch) as usize;
            let make = |at: usize, bytes: &mut [u8]| {
                region.read_at(start + at, bytes).expect("checked");
            };
            self.output.make(self.socket, export, extent.row_bytes as usize, make)?;
        }
        Ok(())
    }

    fn note(&mut self, export: Arc<Export>) -> io::Result<()> {
        let note = export.note.get().cloned();
        // A slow reader of the note must not hold the regions.
        drop(export);
        let body = 1 + note.as_ref().map_or(0, |note| note.len());
        let out = &mut self.output.pending;
        out.extend_from_slice(&Header::new(Kind::Noted, body).encode());
        out.push(u8::from(note.is_some()));
        note.map_or(Ok(()), |note| self.output.send(self.socket, &note))
    }

    fn digest(&mut self, export: &Export, extents: &[PlacedExtent]) -> Result<(), Refusal> {
        let _serving = export.serve(self.socket);
        let digests = extents.iter().map(|placed| digest_extent(export, placed));
        let digests = digests.collect::<Result<Vec<_>, _>>()?;
        if !export.is_served() {
            return Err(Refusal::StaleGeneration);
        }
        let out = &mut self.output.pending;
        let start = wire::begin(out, Kind::Digests);
        digests.iter().for_each(|digest| out.extend_from_slice(&digest.to_bytes()));
        wire::finish(out, start);
        Ok(())
    }
}

/// A request, decoded.
enum Request {
    Identify,
    Describe(ExportId, u64),
    Note(ExportId, u64),
    Read(wire::Ask<Extent>),
    Digest(wire::Ask<PlacedExtent>),
    Await(wire::Ask<Extent>),
}

impl Request {
    fn decode(kind: Kind, body: &[u8]) -> Result<Self, Malformed> {
        match kind {
            Kind::Identify if body.is_empty() => Ok(Self::Identify),
            Kind::Describe => wire::decode_named(body).map(|(id, g)| Self::Describe(id, g)),
            Kind::Note => wire::decode_named(body).map(|(id, g)| Self::Note(id, g)),
            Kind::Read => wire::decode_read(body).map(Self::Read),
            Kind::Digest => wire::decode_digest(body).map(Self::Digest),
            Kind::Await => wire::decode_read(body).map(Self::Await),
            _ => Err(Malformed("not a request")),
        }
    }
}

/// Whether the peer has not closed its end, as far as the kernel knows.
fn is_connected(socket: &TcpStream) -> bool {
    use rustix::net::{RecvFlags, recv};
    let peeked = recv(socket, &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Ok((0, _)))
}

/// Checks that the extents lie in their regions and hold at most `limit` bytes; returns how many.
fn check<'a>(
    export: &Export,
    extents: impl Iterator<Item = &'a Extent>,
    limit: u64,
) -> Result<u64, Refusal> {
    let mut bytes = 0_u64;
    for extent in extents {
        let region = export.regions().get(extent.region as usize).ok_or(Refusal::OutOfRange)?;
        let end = end(extent.offset, extent.row_bytes, extent.rows, extent.pitch);
        if end.is_none_or(|end| end > region.len() as u64) {
            return Err(Refusal::OutOfRange);
        }
        let more = extent.row_bytes.checked_mul(extent.rows).ok_or(Refusal::TooMuch)?;
        bytes = bytes.checked_add(more).filter(|sum| *sum <= limit).ok_or(Refusal::TooMuch)?;
    }
    Ok(bytes)
}

/// The digest of a checked extent.
fn digest_extent(export: &Export, placed: &PlacedExtent) -> Result<Digest, Refusal> {
    let extent = placed.extent;
    let end = end(placed.position, extent.row_bytes, extent.rows, placed.position_pitch);
    end.ok_or(Refusal::OutOfRange)?;
    if extent.row_bytes == 0 {
        return Ok(Digest::ZERO);
    }
    let region = &export.regions()[extent.region as usize];
    let rows = (0..extent.rows).map(|row| {
        let offset = (extent.offset + row * extent.pitch) as usize;
        let position = placed.position + row * placed.position_pitch;
        region.digest(offset, extent.row_bytes as usize, position)
    });
    rows.sum::<Result<Digest, _>>().map_err(|_| Refusal::OutOfRange)
}
