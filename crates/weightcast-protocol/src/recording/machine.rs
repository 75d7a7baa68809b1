//! A machine together with its recorder: what happens to the one is noted by the other, as nobody can forget.

use std::ops::Deref;

use crate::Time;
use crate::limits::ReelLimits;
use crate::recording::error::RecordingError;
use crate::recording::file::{Recording, RecordingCause};
use crate::recording::recordable::Recordable;
use crate::recording::recorder::Recorder;

/// A machine that only takes inputs past its recorder, if it has one. Take all outputs before the next input, those of the
/// machine's beginning too, but where an output leads to the input.
#[derive(Clone, Debug)]
pub struct RecordedMachine<M> {
    machine: M,
    recorder: Option<Recorder>,
}

impl<M: Recordable> RecordedMachine<M> {
    /// A machine of which nothing is kept.
    pub fn unrecorded(machine: M) -> Self {
        Self { machine, recorder: None }
    }

    /// A machine of which the last two reels are kept.
    pub fn new(machine: M, limits: ReelLimits) -> Self {
        Self { machine, recorder: Some(Recorder::new(limits)) }
    }

    /// This is about to happen to the machine.
    pub(super) fn note(&mut self, now: Time, input: &M::Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now, &self.machine, input);
        }
    }

    /// Lets something happen.
    pub fn take(&mut self, now: Time, input: M::Input) {
        self.note(now, &input);
        self.machine.take(now, input);
    }

    /// Lets something happen that has been noted.
    pub(super) fn noted(&mut self) -> &mut M {
        &mut self.machine
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<M::Output> {
        let output = self.machine.poll_output();
        if let Some(recorder) = &mut self.recorder {
            match &output {
                Some(output) => recorder.said::<M>(output),
                None => recorder.settle(&self.machine),
            }
        }
        output
    }

    /// What was kept, as of now.
    ///
    /// # Errors
    /// Nothing was.
    pub fn recording(
        &self,
        cause: RecordingCause,
        written_at_s: u64,
    ) -> Result<Recording, RecordingError> {
        let recorder = self.recorder.as_ref().ok_or(RecordingError::Empty { limit: 0 })?;
        Recording::of::<M>(recorder, cause, written_at_s)
    }
}

impl<M> Deref for RecordedMachine<M> {
    type Target = M;
    fn deref(&self) -> &M {
        &self.machine
    }
}
