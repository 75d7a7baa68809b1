//! A recording as a file: a line that names the format, a head, an image, the entries since, and a digest of all these.
//!
//! Whatever was cut short or changed by accident shows in the digest. A file that was made up on purpose decodes to
//! something or to an error: its size bounds what that takes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{IMAGE_BYTES, RECORDING_BYTES};
use crate::recording::coding;
use crate::recording::error::RecordingError;
use crate::recording::playback::Playback;
use crate::recording::recordable::{MachineKind, Recordable};
use crate::recording::recorder::Recorder;

/// Which machines these are: the release, and a hash of the machines' sources.
pub const MACHINES: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (machines ", env!("WEIGHTCAST_MACHINES"), ")");

const NAME: &[u8] = b"weightcast recording ";
const FORMAT: &[u8] = b"1\n";
const DIGEST_BYTES: usize = 16;

/// Why a recording was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RecordingCause {
    /// Somebody asked for it.
    Asked,
    /// The process's code gave up, perhaps since an invariant was broken.
    Panic,
    /// A call has failed, with this error.
    FailedCall(String),
}

impl fmt::Display for RecordingCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::Panic => f.write_str("written as the process gave up"),
            Self::FailedCall(error) => write!(f, "written as a call failed: {error}"),
        }
    }
}

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHead {
    /// The machines that were recorded: [`MACHINES`] of the build that wrote it.
    pub machines: String,
    /// Which machine.
    pub kind: MachineKind,
    /// Why it was written.
    pub cause: RecordingCause,
    /// When, in seconds since 1970.
    pub written_at_s: u64,
    /// Events in it.
    pub events: u64,
    image_bytes: u64,
}

/// A recording that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    /// What it is of.
    pub head: RecordingHead,
    image: Vec<u8>,
    pub(super) entries: Vec<u8>,
}

impl Recording {
    /// What a recorder has of its machine.
    pub(super) fn of<M: Recordable>(
        recorder: &Recorder,
        cause: RecordingCause,
        written_at_s: u64,
    ) -> Result<Self, RecordingError> {
        let mut reels = recorder.reels();
        let first = reels.next().ok_or(RecordingError::Empty { limit: IMAGE_BYTES })?;
        let (image, mut entries, mut events) =
            (first.image.clone(), first.entries.clone(), first.events);
        for reel in reels {
            entries.extend_from_slice(&reel.entries);
            events += reel.events;
        }
        let head = RecordingHead {
            machines: MACHINES.to_owned(),
            kind: M::KIND,
            cause,
            written_at_s,
            events,
            image_bytes: image.len() as u64,
        };
        Ok(Self { head, image, entries })
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = [NAME, FORMAT].concat();
        coding::append(&self.head, &mut bytes, usize::MAX).expect("no bound was set");
        bytes.extend_from_slice(&self.image);
        bytes.extend_from_slice(&self.entries);
        let digest = digest(&bytes);
        bytes.extend_from_slice(&digest);
        bytes
    }

    /// The recording of a file.
    ///
    /// # Errors
    /// The bytes are no recording, or damaged, or of a build whose head is another.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordingError> {
        if bytes.len() > RECORDING_BYTES {
            let (limit, got) = (RECORDING_BYTES, bytes.len() as u64);
            return Err(RecordingError::TooLarge { limit, got });
        }
        let named = bytes.strip_prefix(NAME).ok_or(RecordingError::Foreign)?;
        if !named.starts_with(FORMAT) {
            return Err(RecordingError::Format);
        }
        let (whole, found) =
            bytes.split_last_chunk::<DIGEST_BYTES>().ok_or(RecordingError::Damaged)?;
        if digest(whole) != *found {
            return Err(RecordingError::Damaged);
        }
        let mut rest = whole.get(NAME.len() + FORMAT.len()..).ok_or(RecordingError::Damaged)?;
        let unreadable =
            || RecordingError::Unreadable { what: "its head", machines: "another".to_owned() };
        let head: RecordingHead = coding::take(&mut rest).ok_or_else(unreadable)?;
        let image_bytes = usize::try_from(head.image_bytes).ok();
        let (image, entries) =
            image_bytes.and_then(|at| rest.split_at_checked(at)).ok_or_else(unreadable)?;
        let (image, entries) = (image.to_vec(), entries.to_vec());
        Ok(Self { head, image, entries })
    }

    /// The machine as it was when the recording begins.
    ///
    /// # Errors
    /// It is another machine, or one of a build whose types are others.
    pub fn play<M: Recordable>(&self) -> Result<Playback<'_, M>, RecordingError> {
        if self.head.kind != M::KIND {
            return Err(RecordingError::OtherKind { kind: self.head.kind });
        }
        let mut rest = &self.image[..];
        let machine = coding::take(&mut rest).filter(|_| rest.is_empty());
        let machine = machine.ok_or_else(|| RecordingError::Unreadable {
            what: "the state in it",
            machines: self.head.machines.clone(),
        })?;
        Ok(Playback::new(machine, &self.entries, &self.head.machines))
    }
}

fn digest(bytes: &[u8]) -> [u8; DIGEST_BYTES] {
    *blake3::hash(bytes).as_bytes().first_chunk().expect("it has 32 bytes")
}
