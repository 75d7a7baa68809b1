//! The machine of a recording, event for event.

use std::collections::VecDeque;

use crate::Time;
use crate::recording::coding;
use crate::recording::entry::ReelEntry;
use crate::recording::error::RecordingError;
use crate::recording::marks::OutputMark;
use crate::recording::recordable::Recordable;

/// The most events between which outputs are not taken: what one event puts out may cut all streams of a server off, of
/// which there are [`Limits::sessions`](crate::limits::Limits::sessions).
const BATCH: usize = 1 << 15;

/// A machine as it was at some event of a recording, and the events that follow.
///
/// Take the [`next`](Playback::next) event and [`play`](Playback::play) it, until there is none. A machine that failed
/// fails again: `play` panics where the recorded machine did.
#[derive(Debug)]
pub struct Playback<'a, M: Recordable> {
    machine: M,
    rest: &'a [u8],
    machines: &'a str,
    /// Events between which outputs were not taken to the end.
    batch: VecDeque<RecordedEvent<M::Input>>,
    /// Of the outputs of the batch, unless the recording ends before they were taken.
    mark: Option<u32>,
    read: u64,
}

/// An event of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedEvent<I> {
    /// Its number, from 1.
    pub number: u64,
    /// When it was, on the clock of the machine's process.
    pub at: Time,
    /// What happened.
    pub input: I,
}

/// What came of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlayedEvent<O> {
    /// The next event was there before the outputs were taken: what this one has led to comes then.
    Pending,
    /// The machine put these out.
    Settled {
        /// The outputs.
        outputs: Vec<O>,
        /// Whether the recorded machine put out the same.
        as_recorded: bool,
    },
    /// The machine put these out. The recording ends within the event: the recorded machine failed in it, or was recorded
    /// before all its outputs were taken.
    Unfinished {
        /// The outputs.
        outputs: Vec<O>,
    },
}

impl<'a, M: Recordable> Playback<'a, M> {
    pub(super) fn new(machine: M, rest: &'a [u8], machines: &'a str) -> Self {
        Self { machine, rest, machines, batch: VecDeque::new(), mark: None, read: 0 }
    }

    /// The machine as it is now.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// Whether the recording ends within the event that is played next.
    pub fn ends_here(&self) -> bool {
        self.batch.is_empty() && self.mark.is_none()
    }

    /// The next event, which is to be played.
    ///
    /// # Errors
    /// The recording cannot be read from here on.
    #[expect(clippy::should_implement_trait, reason = "an iterator has no end with an error")]
    pub fn next(&mut self) -> Result<Option<RecordedEvent<M::Input>>, RecordingError> {
        if self.batch.is_empty() {
            self.read_batch()?;
        }
        Ok(self.batch.pop_front())
    }

    fn read_batch(&mut self) -> Result<(), RecordingError> {
        self.mark = None;
        while !self.rest.is_empty() && self.mark.is_none() {
            let entry = coding::take(&mut self.rest);
            match entry.ok_or_else(|| self.unreadable())? {
                ReelEntry::Input { .. } if self.batch.len() == BATCH => {
                    return Err(self.unreadable());
                }
                ReelEntry::Input { at, believed, input } => {
                    self.read += 1;
                    let input = if believed { M::signed(input) } else { input };
                    self.batch.push_back(RecordedEvent { number: self.read, at, input });
                }
                // No machine is settled before anything happens.
                ReelEntry::Settled { .. } if self.batch.is_empty() => {
                    return Err(self.unreadable());
                }
                ReelEntry::Settled { mark, drawn } => {
                    self.machine.give(drawn);
                    self.mark = Some(mark);
                }
            }
        }
        Ok(())
    }

    fn unreadable(&self) -> RecordingError {
        RecordingError::Unreadable { what: "an event of it", machines: self.machines.to_owned() }
    }

    /// Lets an event happen.
    pub fn play(&mut self, event: RecordedEvent<M::Input>) -> PlayedEvent<M::Output> {
        self.machine.take(event.at, event.input);
        if !self.batch.is_empty() {
            return PlayedEvent::Pending;
        }
        let mut found = OutputMark::default();
        let mut outputs = Vec::new();
        while let Some(output) = self.machine.poll_output() {
            M::mark(&output, &mut found);
            outputs.push(output);
        }
        match self.mark {
            Some(mark) => PlayedEvent::Settled { outputs, as_recorded: found.take() == mark },
            None => PlayedEvent::Unfinished { outputs },
        }
    }
}
