//! The flight recorder of a process: what `weightcast_protocol::recording` keeps of its machines, and the files in which
//! that is left when something goes wrong, or somebody asks.

mod files;
mod flight_recorder;

pub(crate) use files::RecordingFiles;
pub use files::WrittenRecording;
pub(crate) use flight_recorder::FlightRecorder;

#[cfg(test)]
mod costs;
