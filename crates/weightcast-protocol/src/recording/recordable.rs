//! What the recorder asks of a machine.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::recording::marks::{OutputMark, mark_server, mark_session};
use crate::server::{Server, ServerInput, ServerOutput, Violation};
use crate::session::{Output, Session, SessionInput};
use crate::{Nonce, Time};

/// Which machine is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MachineKind {
    /// A reference server.
    Server,
    /// One shard's session.
    Session,
}

impl fmt::Display for MachineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Session => "session",
        })
    }
}

/// A machine whose course follows from its state and its inputs. Its encoding leaves secrets out, and outputs that wait.
pub trait Recordable: Serialize + DeserializeOwned {
    /// What happens to the machine.
    type Input: Serialize + DeserializeOwned;
    /// What the machine has its runtime do.
    type Output;
    /// Which machine this is.
    const KIND: MachineKind;

    /// Lets something happen.
    fn take(&mut self, now: Time, input: Self::Input);

    /// The next output, until there is none.
    fn poll_output(&mut self) -> Option<Self::Output>;

    /// Adds an output to a mark, without what a recording does not have.
    fn mark(output: &Self::Output, into: &mut OutputMark);

    /// Checks the invariants of the state.
    ///
    /// # Errors
    /// One does not hold.
    fn check(&self) -> Result<(), Violation> {
        Ok(())
    }

    /// Whether an input shows a past that is believed here. What proves the past is secret, so a recording has the verdict.
    fn believes(&self, _input: &Self::Input) -> bool {
        false
    }

    /// An input that is to be believed, as the machine of a recording believes it.
    fn signed(input: Self::Input) -> Self::Input {
        input
    }

    /// How many secret numbers were drawn.
    fn drawn(&self) -> u64 {
        0
    }

    /// Those after the first so many. They are no secret any more once they are drawn.
    fn drawn_after(&self, _count: u64) -> Vec<Nonce> {
        Vec::new()
    }

    /// The numbers that are drawn next.
    fn give(&mut self, _nonces: Vec<Nonce>) {}
}

impl Recordable for Server {
    type Input = ServerInput;
    type Output = ServerOutput;
    const KIND: MachineKind = MachineKind::Server;

    fn take(&mut self, now: Time, input: ServerInput) {
        Server::take(self, now, input);
    }

    fn poll_output(&mut self) -> Option<ServerOutput> {
        Server::poll_output(self)
    }

    fn mark(output: &ServerOutput, into: &mut OutputMark) {
        mark_server(output, into);
    }

    fn check(&self) -> Result<(), Violation> {
        self.validate()
    }

    fn believes(&self, input: &ServerInput) -> bool {
        Server::believes(self, input)
    }

    fn signed(input: ServerInput) -> ServerInput {
        input.signed()
    }

    fn drawn(&self) -> u64 {
        Server::drawn(self)
    }

    fn drawn_after(&self, count: u64) -> Vec<Nonce> {
        Server::drawn_after(self, count)
    }

    fn give(&mut self, nonces: Vec<Nonce>) {
        Server::give(self, nonces);
    }
}

impl Recordable for Session {
    type Input = SessionInput;
    type Output = Output;
    const KIND: MachineKind = MachineKind::Session;

    fn take(&mut self, now: Time, input: SessionInput) {
        Session::take(self, now, input);
    }

    fn poll_output(&mut self) -> Option<Output> {
        Session::poll_output(self)
    }

    fn mark(output: &Output, into: &mut OutputMark) {
        mark_session(output, into);
    }
}
