//! What can go wrong, and what to do next.

use crate::base::id::ExportId;
use std::fmt;
use std::net::SocketAddr;
use thiserror::Error;

/// What the caller of a failed transfer should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// The source is fine: try it again, perhaps later.
    RetrySame,
    /// This source will not do: ask for another.
    RetryElsewhere,
    /// No source will do: the call itself is wrong, or was given up.
    Fatal,
}

/// Why a connection or a transfer failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TransportError {
    /// No connection to the peer's data port.
    #[error("cannot reach the data port {addr} ({what}): is the peer running and the port open?")]
    Unreachable {
        /// The data port.
        addr: SocketAddr,
        /// What the system said.
        what: String,
    },
    /// The two ends do not hold the same token.
    #[error("the data port {addr} and this process hold different tokens: check both token files")]
    Unauthorized {
        /// The data port.
        addr: SocketAddr,
    },
    /// All connections that the source allows are busy.
    #[error("the data port {addr} is full of busy readers: try again, or read from another source")]
    Full {
        /// The data port.
        addr: SocketAddr,
    },
    /// The source's process died, or its connection broke.
    #[error("the source at {addr} is gone ({what}): read from another source")]
    SourceGone {
        /// The source's data port.
        addr: SocketAddr,
        /// How it showed.
        what: String,
    },
    /// The process that was written to died, or its connection broke.
    #[error(
        "the target at {addr} is gone ({what}): if its process lives, write again; the same bytes may be \
         written twice"
    )]
    TargetGone {
        /// The target's data port.
        addr: SocketAddr,
        /// How it showed.
        what: String,
    },
    /// The source fenced the export: what was read may be torn and must not be used.
    #[error("the source fenced export {export} during the read: read from another source")]
    Fenced {
        /// The export.
        export: ExportId,
    },
    /// The other end answered with a refusal.
    #[error("the peer refused: {0}")]
    Refused(#[from] RequestRefusal),
    /// The deadline passed.
    #[error("deadline passed while {what}: give it longer, or read from another source")]
    Timeout {
        /// What was being done.
        what: &'static str,
    },
    /// The caller cancelled.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// A copy leaves its region; nothing was read.
    #[error("copy {copy} leaves {what}: the plan and the memory disagree")]
    OutOfBounds {
        /// Index into the copies of the job.
        copy: usize,
        /// What it leaves.
        what: Bound,
    },
    /// A target region may not be written; nothing was read.
    #[error("target region {region} is read-only: register it as writable")]
    ReadOnlyTarget {
        /// Index of the target region.
        region: usize,
    },
    /// The memory of a target region may not be written, although it was registered as writable.
    #[error(
        "this process cannot write its target memory at {address:#x}: is it mapped read-only, or \
         no longer? register memory that can be written"
    )]
    UnwritableTarget {
        /// The first address that cannot be written.
        address: u64,
    },
    /// The peer sent what the protocol does not allow.
    #[error("the peer at {addr} broke the data protocol ({what}): are both ends the same release?")]
    Protocol {
        /// The data port.
        addr: SocketAddr,
        /// What was wrong.
        what: &'static str,
    },
    /// The peer sent bytes in a codec that this end does not have, and did not ask for.
    #[error(
        "the peer at {addr} sends bytes in codec {codec}, not in 0 (raw): run one release at both ends"
    )]
    UnknownCodec {
        /// The data port.
        addr: SocketAddr,
        /// Its number.
        codec: u8,
    },
    /// A direct read was demanded, and this peer cannot be read directly.
    #[error("no direct read from {addr} ({what}): let the way be chosen, or use TCP")]
    NoDirect {
        /// The data port.
        addr: SocketAddr,
        /// Why not.
        what: String,
    },
    /// The memory of an export cannot be mapped here.
    #[error(
        "the memory of the source at {addr} is not to be mapped here ({what}): copy it instead"
    )]
    NotLent {
        /// The data port.
        addr: SocketAddr,
        /// Why not.
        what: String,
    },
    /// A system call failed for a reason of this process.
    #[error("{call} failed ({what}): check the limits of this process")]
    System {
        /// The system call.
        call: &'static str,
        /// What the system said.
        what: String,
    },
}

impl TransportError {
    /// The export was there when it was described; if it is refused now, it was fenced since.
    pub(crate) fn while_reading(self, export: ExportId) -> Self {
        match self {
            Self::Refused(RequestRefusal::UnknownExport | RequestRefusal::StaleGeneration) => {
                Self::Fenced { export }
            }
            other => other,
        }
    }

    /// The same failure of a write, whose other end is the target.
    pub(crate) fn while_writing(self) -> Self {
        match self {
            Self::SourceGone { addr, what } => Self::TargetGone { addr, what },
            other => other,
        }
    }

    /// Retry the same source, another one, or give up.
    pub fn advice(&self) -> Advice {
        match self {
            Self::System { .. } | Self::Full { .. } | Self::TargetGone { .. } => Advice::RetrySame,
            Self::Unreachable { .. }
            | Self::SourceGone { .. }
            | Self::Fenced { .. }
            | Self::Timeout { .. }
            | Self::Protocol { .. }
            | Self::UnknownCodec { .. } => Advice::RetryElsewhere,
            Self::Refused(refusal) => refusal.advice(),
            Self::Unauthorized { .. }
            | Self::Cancelled
            | Self::OutOfBounds { .. }
            | Self::ReadOnlyTarget { .. }
            | Self::UnwritableTarget { .. }
            | Self::NoDirect { .. } => Advice::Fatal,
            Self::NotLent { .. } => Advice::RetryElsewhere,
        }
    }
}

/// Why a source would not serve a request. The connection stays usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum RequestRefusal {
    /// Nothing is exposed under this id, or no longer.
    #[error("unknown export")]
    UnknownExport,
    /// The export is of another generation.
    #[error("stale generation")]
    StaleGeneration,
    /// An extent leaves its region.
    #[error("an extent leaves its region")]
    OutOfRange,
    /// The request exceeds a limit of the data port.
    #[error("the request asks for more than one answer may hold")]
    TooMuch,
    /// Bytes were asked for, or given, in a codec that the other end does not have.
    #[error(
        "codec {codec} is unknown to the other end, which has 0 (raw): run one release at both ends"
    )]
    UnknownCodec {
        /// Its number.
        codec: u8,
    },
    /// No open grant allows a write. Why not is not told: a stranger would learn which grants there are.
    #[error(
        "no open grant allows this write: the grant is unknown, closed, expired, of another generation, \
         or this is not its writer; ask the owner of the memory for another"
    )]
    NotGranted,
    /// A word was not heard: nobody listens there, or its proof does not fit.
    #[error("nobody there takes this word: is the other end of the same job, and open?")]
    NotHeard,
}

/// Set in the code of a refused codec, beside the lower seven bits of its number.
const CODEC: u8 = 0x80;

impl RequestRefusal {
    /// Another source may still hold what this one no longer does, or have the codec that this one does
    /// not; a wrong request stays wrong.
    pub fn advice(self) -> Advice {
        match self {
            Self::UnknownExport | Self::StaleGeneration | Self::UnknownCodec { .. } => {
                Advice::RetryElsewhere
            }
            Self::OutOfRange | Self::TooMuch | Self::NotGranted => Advice::Fatal,
            // Somebody may listen there soon.
            Self::NotHeard => Advice::RetrySame,
        }
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::UnknownExport => 1,
            Self::StaleGeneration => 2,
            Self::OutOfRange => 3,
            Self::TooMuch => 4,
            Self::NotGranted => 5,
            Self::NotHeard => 6,
            Self::UnknownCodec { codec } => CODEC | codec,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        use RequestRefusal::*;
        if code & CODEC != 0 {
            return Some(UnknownCodec { codec: code & !CODEC });
        }
        [UnknownExport, StaleGeneration, OutOfRange, TooMuch, NotGranted, NotHeard]
            .into_iter()
            .find(|refusal| refusal.code() == code)
    }
}

/// What a copy left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The source's region, or there is none of that index.
    SourceRegion(u32),
    /// The target's region, or there is none of that index.
    TargetRegion(u32),
    /// The range of positions, or of slots.
    Digest,
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SourceRegion(region) => write!(f, "source region {region}"),
            Self::TargetRegion(region) => write!(f, "target region {region}"),
            Self::Digest => f.write_str("the digest's slots or positions"),
        }
    }
}

/// A failed transfer: which job's source, and why. Target bytes may be half-written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// Index into the jobs.
    pub source: usize,
    /// Why.
    pub kind: TransportError,
}

impl ReadError {
    /// Retry the same source, another one, or give up.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reading from source {}: {}", self.source, self.kind)
    }
}

impl std::error::Error for ReadError {}

/// A failed write: which job's target, and why. Bytes of the target may be half-written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteError {
    /// Index into the jobs.
    pub target: usize,
    /// Why.
    pub kind: TransportError,
}

impl WriteError {
    /// Retry the same target, or give up.
    pub fn advice(&self) -> Advice {
        self.kind.advice()
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writing to target {}: {}", self.target, self.kind)
    }
}

impl std::error::Error for WriteError {}

#[cfg(test)]
mod tests {
    use super::*;
    use Advice::{Fatal, RetryElsewhere, RetrySame};

    #[test]
    fn every_failure_says_what_to_do_next() {
        let addr: SocketAddr = "10.0.0.1:9".parse().unwrap();
        let (export, what) = (ExportId(7), String::new);
        let table = [
            (TransportError::Unreachable { addr, what: what() }, RetryElsewhere),
            (TransportError::Unauthorized { addr }, Fatal),
            (TransportError::Full { addr }, RetrySame),
            (TransportError::SourceGone { addr, what: what() }, RetryElsewhere),
            (TransportError::TargetGone { addr, what: what() }, RetrySame),
            (TransportError::Fenced { export }, RetryElsewhere),
            (TransportError::Refused(RequestRefusal::UnknownExport), RetryElsewhere),
            (TransportError::Refused(RequestRefusal::StaleGeneration), RetryElsewhere),
            (TransportError::Refused(RequestRefusal::OutOfRange), Fatal),
            (TransportError::Refused(RequestRefusal::TooMuch), Fatal),
            (TransportError::Refused(RequestRefusal::NotGranted), Fatal),
            (TransportError::Refused(RequestRefusal::NotHeard), RetrySame),
            (TransportError::Refused(RequestRefusal::UnknownCodec { codec: 5 }), RetryElsewhere),
            (TransportError::UnknownCodec { addr, codec: 5 }, RetryElsewhere),
            (TransportError::Timeout { what: "" }, RetryElsewhere),
            (TransportError::Cancelled, Fatal),
            (TransportError::OutOfBounds { copy: 1, what: Bound::Digest }, Fatal),
            (TransportError::ReadOnlyTarget { region: 1 }, Fatal),
            (TransportError::UnwritableTarget { address: 1 }, Fatal),
            (TransportError::Protocol { addr, what: "" }, RetryElsewhere),
            (TransportError::NoDirect { addr, what: what() }, Fatal),
            (TransportError::NotLent { addr, what: what() }, RetryElsewhere),
            (TransportError::System { call: "", what: what() }, RetrySame),
        ];
        for (kind, advice) in table {
            // An export that was described and is refused now was fenced since.
            let gone = [RequestRefusal::UnknownExport, RequestRefusal::StaleGeneration]
                .map(TransportError::from);
            let expected = match gone.contains(&kind) {
                true => TransportError::Fenced { export: ExportId(3) },
                false => kind.clone(),
            };
            assert_eq!(kind.advice(), advice, "{kind}");
            assert_eq!(kind.clone().while_reading(ExportId(3)), expected);
            let error = ReadError { source: 5, kind: kind.clone() };
            assert_eq!(error.advice(), advice, "{kind}");
            assert_eq!(error.to_string(), format!("reading from source 5: {kind}"));
            let expected = match kind.clone() {
                TransportError::SourceGone { addr, what } => {
                    TransportError::TargetGone { addr, what }
                }
                other => other,
            };
            assert_eq!(kind.clone().while_writing(), expected);
            let error = WriteError { target: 5, kind: kind.clone() };
            assert_eq!(error.advice(), advice, "{kind}");
            assert_eq!(error.to_string(), format!("writing to target 5: {kind}"));
        }
    }

    #[test]
    fn refusals_are_known_numbers() {
        use RequestRefusal::*;
        let table = [
            (1, UnknownExport),
            (2, StaleGeneration),
            (3, OutOfRange),
            (4, TooMuch),
            (5, NotGranted),
            (6, NotHeard),
        ];
        for code in 0..=255 {
            let refusal = table.iter().find(|(number, _)| *number == code).map(|(_, r)| *r);
            let refusal = match code {
                128.. => Some(UnknownCodec { codec: code - 128 }),
                _ => refusal,
            };
            refusal.into_iter().for_each(|refusal| assert_eq!(refusal.code(), code));
            assert_eq!(RequestRefusal::from_code(code), refusal, "{code}");
        }
        table.into_iter().for_each(|(code, refusal)| assert_eq!(refusal.code(), code));
    }

    #[test]
    fn a_bound_is_named() {
        let said = [Bound::SourceRegion(3), Bound::TargetRegion(4), Bound::Digest];
        let said = said.map(|bound| bound.to_string());
        assert_eq!(said, ["source region 3", "target region 4", "the digest's slots or positions"]);
    }
}
