//! The last minutes in memory: two reels, each with an image of the machine and what has happened since. When one is full,
//! the next begins, and the one before the last is forgotten.
//!
//! Everything is encoded as it comes. So a machine that fails leaves a recording, whatever state it is in, no secret is
//! kept for the recording's sake, and an event costs some tens of bytes.

use serde::Serialize;

use crate::Time;
use crate::limits::{IMAGE_BYTES, ReelLimits};
use crate::recording::coding;
use crate::recording::entry::ReelEntry;
use crate::recording::marks::OutputMark;
use crate::recording::recordable::Recordable;

/// What is kept of one machine.
#[derive(Clone, Debug)]
pub(super) struct Recorder {
    limits: ReelLimits,
    previous: Option<Reel>,
    /// None before the first event, and while the machine is too large.
    current: Option<Reel>,
    /// When a reel may begin, while there is none.
    again_at: Time,
    mark: OutputMark,
    /// Nothing has happened since all outputs were taken.
    settled: bool,
    /// How many secret numbers were drawn by then.
    drawn: u64,
}

/// An image and what has happened since.
#[derive(Clone, Debug)]
pub(super) struct Reel {
    begun: Time,
    pub(super) image: Vec<u8>,
    pub(super) entries: Vec<u8>,
    /// Inputs among the entries.
    pub(super) events: u64,
}

impl Reel {
    fn write(&mut self, entry: &impl Serialize) {
        coding::append(entry, &mut self.entries, usize::MAX).expect("no bound was set");
    }
}

impl Recorder {
    pub(super) fn new(limits: ReelLimits) -> Self {
        Self {
            limits,
            previous: None,
            current: None,
            again_at: Time(0),
            mark: OutputMark::default(),
            settled: true,
            drawn: 0,
        }
    }

    /// This is about to happen to the machine.
    pub(super) fn note<M: Recordable>(&mut self, now: Time, machine: &M, input: &M::Input) {
        if self.settled && self.is_over(now) {
            self.turn(now, machine);
        }
        self.settled = false;
        if let Some(reel) = &mut self.current {
            let believed = machine.believes(input);
            reel.write(&ReelEntry::Input { at: now, believed, input });
            reel.events += 1;
        }
    }

    /// The machine has put this out.
    pub(super) fn said<M: Recordable>(&mut self, output: &M::Output) {
        M::mark(output, &mut self.mark);
    }

    /// All that the machine has put out was taken.
    pub(super) fn settle<M: Recordable>(&mut self, machine: &M) {
        let mark = self.mark.take();
        if std::mem::replace(&mut self.settled, true) {
            return;
        }
        let drawn = machine.drawn_after(self.drawn);
        self.drawn = machine.drawn();
        if let Some(reel) = &mut self.current {
            reel.write(&ReelEntry::<()>::Settled { mark, drawn });
        }
    }

    /// The reels that there are, the older first.
    pub(super) fn reels(&self) -> impl Iterator<Item = &Reel> {
        self.previous.iter().chain(&self.current)
    }

    fn is_over(&self, now: Time) -> bool {
        match &self.current {
            Some(reel) => {
                reel.entries.len() >= self.limits.bytes || now >= reel.begun + self.limits.span
            }
            None => now >= self.again_at,
        }
    }

    /// The next reel begins with the machine as it is now. A machine that is too large for an image is not recorded for a
    /// while: from nothing, nothing can be played back.
    fn turn<M: Recordable>(&mut self, now: Time, machine: &M) {
        let mut image = Vec::new();
        self.previous = self.current.take();
        match coding::append(machine, &mut image, IMAGE_BYTES) {
            Ok(()) => {
                self.current = Some(Reel { begun: now, image, entries: Vec::new(), events: 0 });
            }
            Err(coding::Overflow) => {
                (self.previous, self.again_at) = (None, now + self.limits.span);
            }
        }
    }
}
