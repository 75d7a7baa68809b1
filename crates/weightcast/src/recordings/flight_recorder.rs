//! A machine, its recorder, and where recordings go. Dropped by a panic, it writes one.

use std::ops::{Deref, DerefMut};

use weightcast_protocol::CallError;
use weightcast_protocol::limits::ReelLimits;
use weightcast_protocol::recording::{
    Recordable, RecordedMachine, Recording, RecordingCause, RecordingError,
};

use super::files::{RecordingFiles, WrittenRecording, since_1970};
use crate::error::Error;

/// A machine that leaves a recording if the thread that drives it panics.
pub(crate) struct FlightRecorder<M: Recordable> {
    machine: RecordedMachine<M>,
    files: RecordingFiles,
    /// Failed calls leave one as well.
    of_failures: bool,
}

impl<M: Recordable> FlightRecorder<M> {
    pub(crate) fn new(machine: M, limits: ReelLimits, files: RecordingFiles) -> Self {
        Self { machine: RecordedMachine::new(machine, limits), files, of_failures: false }
    }

    /// The same, and failed calls leave a recording as well, if `wanted`.
    pub(crate) fn of_failures(self, wanted: bool) -> Self {
        let mut recorder = self;
        recorder.of_failures = wanted;
        recorder
    }

    /// A call has failed.
    pub(crate) fn call_failed(&self, error: &CallError) {
        if self.of_failures {
            self.leave(RecordingCause::FailedCall(error.to_string()));
        }
    }

    /// What was kept, as of now.
    pub(crate) fn recording(&self, cause: RecordingCause) -> Result<Recording, RecordingError> {
        self.machine.recording(cause, since_1970().as_secs())
    }

    /// Writes that.
    pub(crate) fn write(&self, cause: RecordingCause) -> Result<WrittenRecording, Error> {
        self.files.write(&self.recording(cause)?)
    }

    /// The same, for those who have nobody to tell: the log says where it is, or why there is none.
    pub(crate) fn leave(&self, cause: RecordingCause) {
        match self.write(cause) {
            Ok(WrittenRecording { path, .. }) => {
                let path = path.display();
                tracing::error!("what led to this is recorded: weightcast replay {path}");
            }
            Err(error) => tracing::error!(%error, "what led to this is not recorded"),
        }
    }
}

impl<M: Recordable> Drop for FlightRecorder<M> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.leave(RecordingCause::Panic);
        }
    }
}

impl<M: Recordable> Deref for FlightRecorder<M> {
    type Target = RecordedMachine<M>;
    fn deref(&self) -> &RecordedMachine<M> {
        &self.machine
    }
}

impl<M: Recordable> DerefMut for FlightRecorder<M> {
    fn deref_mut(&mut self) -> &mut RecordedMachine<M> {
        &mut self.machine
    }
}
