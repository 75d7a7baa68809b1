//! The bytes of the data port: little-endian, a fixed header of 16 bytes, then a body.
//!
//! | header field | bytes | |
//! |---|---|---|
//! | magic | 4 | `WCD1` |
//! | kind | 1 | [`FrameKind`] |
//! | status | 1 | refusal code, or 1 for a fenced end; of `Read`, `Data` and `Write` the codec of the bytes |
//! | zero | 2 | |
//! | body | 8 | bytes that follow |
//!
//! A read is answered by `Data`, whose body is the extents' bytes back to back, and an `End` that
//! says whether they count; everything else by one frame. Answers keep the order of requests.
//! A length is checked before anything is allocated for it.

use crate::base::error::RequestRefusal;
use crate::base::id::ExportId;
use crate::base::limits::{MAX_ANSWER_BYTES, MAX_NOTE_BYTES, MAX_READ_BYTES, MAX_REQUEST_BYTES};

pub(crate) const HEADER_BYTES: usize = 16;
/// A note, and the byte before it that says whether there is one.
const NOTED_BYTES: usize = 1 + MAX_NOTE_BYTES;
const MAGIC: [u8; 4] = *b"WCD1";

/// Bytes that are not the protocol. The connection they came from is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) &'static str);

pub(super) type Decoded<T> = Result<T, Malformed>;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FrameKind {
    /// Request: which Unix socket is yours?
    Identify = 1,
    /// Request: how large is this export, and, over the Unix socket, where does it lie?
    Describe = 2,
    /// Request: the bytes of these extents.
    Read = 3,
    /// Request: the digests of these extents.
    Digest = 4,
    /// Request: the note of this export.
    Note = 5,
    /// Request: wait until these extents are final.
    Await = 6,
    /// Request: take these bytes, by leave of a grant.
    Write = 7,
    /// Request: the note of this export or its early note, whichever is there within a time.
    EarlyNote = 8,
    /// Request: hear this word of a holder of the token.
    Word = 9,
    /// Request, over the Unix socket: lend me the memory of this export, to be mapped.
    Lend = 10,
    /// Request: wait until more than so many units of this export are final, or all.
    News = 11,
    /// Answer to `Identify`.
    Identity = 129,
    /// Answer to `Describe`.
    Description = 130,
    /// Answer to `Read`, followed by `End`.
    Data = 131,
    /// Answer to `Digest`.
    Digests = 132,
    /// The verdict on the data before it.
    End = 133,
    /// Any request may be refused; the status says why.
    Refused = 134,
    /// Answer to `Note` and `EarlyNote`.
    Noted = 135,
    /// Answer to `Await` and `News`: one bit for each unit of progress.
    Progress = 136,
    /// Answer to `Write`: all of its bytes are in memory.
    Written = 137,
    /// Answer to `Word`: whoever listens here has the word.
    Heard = 138,
    /// Answer to `Lend`, whose first byte brings descriptors along: where in which file each region lies.
    Lent = 139,
}

impl FrameKind {
    fn from_code(code: u8) -> Option<Self> {
        use FrameKind::*;
        let requests =
            [Identify, Describe, Read, Digest, Note, Await, Write, EarlyNote, Word, Lend, News];
        let answers = [
            Identity,
            Description,
            Data,
            Digests,
            End,
            Refused,
            Noted,
            Progress,
            Written,
            Heard,
            Lent,
        ];
        requests.into_iter().chain(answers).find(|kind| *kind as u8 == code)
    }

    /// True for what a reader sends.
    pub(crate) fn is_request(self) -> bool {
        (self as u8) < Self::Identity as u8
    }
}

/// The fixed header of every frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: FrameKind,
    pub(crate) status: u8,
    pub(crate) body: usize,
}

impl Header {
    pub(crate) fn new(kind: FrameKind, body: usize) -> Self {
        Self { kind, status: 0, body }
    }

    /// The end of an answered read.
    pub(crate) fn end(served: bool) -> Self {
        Self { kind: FrameKind::End, status: u8::from(!served), body: 0 }
    }

    pub(crate) fn refusal(refusal: RequestRefusal) -> Self {
        Self { kind: FrameKind::Refused, status: refusal.code(), body: 0 }
    }

    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[5] = self.status;
        bytes[8..].copy_from_slice(&(self.body as u64).to_le_bytes());
        bytes
    }

    /// Checks everything about a header that does not need its body.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Decoded<Self> {
        let [m0, m1, m2, m3, kind, status, z0, z1, body @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC || [z0, z1] != [0, 0] {
            return Err(Malformed("not a frame"));
        }
        let kind = FrameKind::from_code(kind).ok_or(Malformed("unknown kind of frame"))?;
        let body = u64::from_le_bytes(body);
        let limit = match kind {
            FrameKind::Data => MAX_READ_BYTES,
            FrameKind::Noted => NOTED_BYTES as u64,
            kind if kind.is_request() => MAX_REQUEST_BYTES as u64,
            _ => MAX_ANSWER_BYTES as u64,
        };
        if body > limit {
            return Err(Malformed("frame beyond its limit"));
        }
        Ok(Self { kind, status, body: body as usize })
    }
}

/// Starts a request frame; the length is filled in by [`finish`].
pub(crate) fn begin(out: &mut Vec<u8>, kind: FrameKind) -> usize {
    let start = out.len();
    out.extend_from_slice(&Header::new(kind, 0).encode());
    start
}

/// Fills in the length of the frame that began at `start`.
pub(crate) fn finish(out: &mut [u8], start: usize) {
    finish_before(out, start, 0);
}

/// The same of a frame whose last `more` bytes are sent from elsewhere.
pub(super) fn finish_before(out: &mut [u8], start: usize, more: usize) {
    let body = (out.len() - start - HEADER_BYTES + more) as u64;
    out[start + 8..start + HEADER_BYTES].copy_from_slice(&body.to_le_bytes());
}

/// Appends numbers.
pub(crate) fn put(out: &mut Vec<u8>, numbers: &[u64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// A request that names an export and nothing else.
pub(crate) fn named(kind: FrameKind, export: ExportId, generation: u64) -> Vec<u8> {
    let mut request = Vec::new();
    let start = begin(&mut request, kind);
    put(&mut request, &[export.0, generation]);
    finish(&mut request, start);
    request
}

/// A request that names an export and a number.
pub(crate) fn numbered(kind: FrameKind, export: ExportId, generation: u64, number: u64) -> Vec<u8> {
    let mut request = Vec::new();
    let start = begin(&mut request, kind);
    put(&mut request, &[export.0, generation, number]);
    finish(&mut request, start);
    request
}

#[cfg(test)]
mod tests;
