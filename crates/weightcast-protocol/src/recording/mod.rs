//! The flight recorder: the last minutes of a server or a session, without secrets, and how they are played back.
//!
//! Both machines are pure: the same state and the same inputs at the same times lead to the same outputs. So a recording
//! has the state at one moment (the image) and everything that has happened since. See `docs/concepts/recorder.md`.
//!
//! From below to above:
//! - `recordable`: what the recorder asks of a machine; `marks`: a short hash of outputs;
//! - `coding`: values as bytes and back; `entry`: what is written down of one event;
//! - `recorder`: the last two reels in memory;
//! - `file`: a recording as a file; `playback`: the machine of a recording, event for event;
//! - `machine`: a machine together with its recorder, for runtimes; `recorded_server` and `recorded_session`: its inputs by
//!   their names.

mod coding;
mod entry;
mod error;
mod file;
mod machine;
mod marks;
mod playback;
mod recordable;
mod recorded_server;
mod recorded_session;
mod recorder;
#[cfg(test)]
mod stored;

pub use error::RecordingError;
pub use file::{MACHINES, Recording, RecordingCause, RecordingHead};
pub use machine::RecordedMachine;
pub use marks::OutputMark;
pub use playback::{Playback, PlayedEvent, RecordedEvent};
pub use recordable::{MachineKind, Recordable};

#[cfg(test)]
pub(crate) use stored::{plays_on_alike, stored};
#[cfg(test)]
mod tests;
