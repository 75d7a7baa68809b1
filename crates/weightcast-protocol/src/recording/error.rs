//! Why a recording cannot be had or read.

use thiserror::Error;

use crate::recording::recordable::MachineKind;

/// Why there is no recording, or why a file is none.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RecordingError {
    /// Nothing has happened yet, or the machine's state is too large.
    #[error(
        "there is no recording: nothing has happened yet, or the state has more than {limit} bytes, which are not kept"
    )]
    Empty {
        /// The most bytes that an image may have.
        limit: usize,
    },
    /// Larger than any recording.
    #[error("the file has {got} bytes, a recording at most {limit}: it is none")]
    TooLarge {
        /// The most bytes that a recording has.
        limit: usize,
        /// The file's bytes.
        got: u64,
    },
    /// Some other file.
    #[error("the file is no recording: it does not begin with \"weightcast recording\"")]
    Foreign,
    /// Of another format.
    #[error(
        "the recording is of another format than this build reads: play it with the build that wrote it"
    )]
    Format,
    /// Not what was written.
    #[error(
        "the recording is damaged or cut short, its digest is not that of its bytes: copy the file again"
    )]
    Damaged,
    /// Of another build.
    #[error(
        "{what} cannot be read here: play the recording with the build that wrote it, {machines}"
    )]
    Unreadable {
        /// The part of the file.
        what: &'static str,
        /// Which machines were recorded.
        machines: String,
    },
    /// Of the other machine.
    #[error("this is the recording of a {kind}")]
    OtherKind {
        /// Of which one.
        kind: MachineKind,
    },
}
