//! Reels, files and what is played back, of a machine that is simple enough to foresee; and what a file does not have.

mod costs;
mod files;
mod marks;
mod reels;
mod secrets;

use std::hash::Hash;

use serde::{Deserialize, Serialize};

use super::*;
use crate::limits::ReelLimits;
use crate::{Nonce, Span, Time};

/// A machine that counts. It says each number that it comes to, as often as it is told, and fails at 13.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counter {
    count: u64,
    /// To make it large.
    ballast: String,
    drawn: u64,
    /// What numbers are drawn with; recordings do not have it.
    #[serde(skip)]
    secret: u64,
    #[serde(skip)]
    given: Vec<Nonce>,
    #[serde(skip)]
    says: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum CounterInput {
    /// So much more; said so often.
    Up(u64, usize),
    /// By a number that is drawn with a secret.
    Drawn,
}

impl Recordable for Counter {
    type Input = CounterInput;
    type Output = u64;
    const KIND: MachineKind = MachineKind::Session;

    fn take(&mut self, _: Time, input: CounterInput) {
        let (by, times) = match input {
            CounterInput::Up(by, times) => (by, times),
            CounterInput::Drawn => {
                self.drawn += 1;
                let given = (!self.given.is_empty()).then(|| self.given.remove(0));
                (given.map_or(self.secret + self.drawn, |nonce| nonce.0), 1)
            }
        };
        self.count += by;
        assert_ne!(self.count, 13, "unlucky");
        self.says.extend(std::iter::repeat_n(self.count, times));
    }

    fn poll_output(&mut self) -> Option<u64> {
        (!self.says.is_empty()).then(|| self.says.remove(0))
    }

    fn mark(output: &u64, into: &mut OutputMark) {
        output.hash(into);
    }

    fn drawn(&self) -> u64 {
        self.drawn
    }

    fn drawn_after(&self, count: u64) -> Vec<Nonce> {
        (count..self.drawn).map(|before| Nonce(self.secret + before + 1)).collect()
    }

    fn give(&mut self, nonces: Vec<Nonce>) {
        self.given = nonces;
    }
}

const WIDE: ReelLimits = ReelLimits { bytes: usize::MAX, span: Span(u64::MAX) };

fn counter(limits: ReelLimits) -> RecordedMachine<Counter> {
    RecordedMachine::new(Counter { secret: 0x5ec2_e75e_c2e7, ..Counter::default() }, limits)
}

/// Lets something happen, and takes all that comes of it.
fn step(machine: &mut RecordedMachine<Counter>, at: u64, input: CounterInput) -> Vec<u64> {
    machine.take(Time(at), input);
    std::iter::from_fn(|| machine.poll_output()).collect()
}

fn recorded(machine: &RecordedMachine<Counter>) -> Recording {
    machine.recording(RecordingCause::Asked, 1_000).expect("something has happened")
}

/// What came of each event, and the machine at the end.
fn played(recording: &Recording) -> (Vec<PlayedEvent<u64>>, Counter) {
    let mut playback = recording.play::<Counter>().expect("the types are the same");
    let mut came = Vec::new();
    while let Some(event) = playback.next().expect("the types are the same") {
        assert_eq!(event.number, came.len() as u64 + 1);
        came.push(playback.play(event));
    }
    (came, playback.machine().clone())
}

fn settled(outputs: &[u64]) -> PlayedEvent<u64> {
    PlayedEvent::Settled { outputs: outputs.to_vec(), as_recorded: true }
}
