//! A rig as the host of a session: keeps the books, and calls the rig.

use weightcast_protocol::message::{Answer, ClientMessage, Witnesses};
use weightcast_protocol::session::{self, Output, ReadOrder, SessionHost};
use weightcast_protocol::{
    Attempt, CallError, ConnectionId, Generation, Nonce, OpSeq, Span, TermProof, Version,
};

use crate::host::{Exposed, VirtualHost};

/// What a rig does when the session of one of its processes asks for something. The books are up to
/// date when a method is called, except in [`stopping_read`](Self::stopping_read).
pub trait VirtualRuntime {
    /// A running read, with its progress.
    type Reading;
    /// What a staged update has read beside the memory.
    type Staged;

    /// The books of the process.
    fn host(&mut self) -> &mut VirtualHost<Self::Reading, Self::Staged>;

    /// As [`SessionHost::next_output`].
    fn next_output(&mut self) -> Option<Output>;

    /// As [`SessionHost::connect`]. The rig decides what becomes of an older stream: a server may
    /// have to be told of its end.
    fn connect(&mut self, server: usize);

    /// As [`SessionHost::read`]. The rig itself books the read, with its progress.
    fn read(&mut self, order: ReadOrder);

    /// As [`SessionHost::answer`].
    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>);

    /// As [`SessionHost::probe`].
    fn probe(&mut self, _server: usize, _proof: TermProof) {}

    /// A message leaves on the open stream.
    fn send(&mut self, _stream: ConnectionId, _message: ClientMessage) {}

    /// All of the memory is served.
    fn exposed(&mut self, _generation: Generation) {}

    /// The memory is served while it is filled.
    fn exposed_filling(&mut self, _generation: Generation) {}

    /// The generation is fenced. `before` is what was served until now, of this generation or an
    /// older one.
    fn fenced(&mut self, _generation: Generation, _before: Option<Exposed>) {}

    /// The published memory is to be digested.
    fn seal(&mut self, _generation: Generation) {}

    /// A challenge is to be answered.
    fn prove(&mut self, _generation: Generation, _nonce: Nonce) {}

    /// As [`SessionHost::compare`].
    fn compare(&mut self, _witnesses: Box<Witnesses>) {}

    /// As [`SessionHost::measure`].
    fn measure(&mut self, _seq: OpSeq, _attempt: Attempt) {}

    /// A running read or install is removed from the books right after this call.
    fn stopping_read(&mut self) {}

    /// What was read beside the memory is dropped.
    fn unstaged(&mut self) {}

    /// The version read beside the memory is to be installed.
    fn install(&mut self, _seq: OpSeq, _attempt: Attempt) {}

    /// The memory is to be copied aside.
    fn offload(&mut self, _version: Version, _generation: Generation) {}

    /// A seed is to be opened.
    fn seed(&mut self, _version: Version, _ask: u64, _deadline: Span) {}

    /// The session is over.
    fn end(&mut self, _error: Option<CallError>) {}
}

/// Makes a rig do what its session asks for, as [`session::drive`] does.
pub fn drive(runtime: &mut impl VirtualRuntime) {
    session::drive(&mut Booked(runtime));
}

/// A rig, with its books kept for it.
struct Booked<'a, T>(&'a mut T);

impl<T: VirtualRuntime> SessionHost for Booked<'_, T> {
    fn next_output(&mut self) -> Option<Output> {
        self.0.next_output()
    }

    fn connect(&mut self, server: usize) {
        self.0.connect(server);
    }

    fn probe(&mut self, server: usize, proof: TermProof) {
        self.0.probe(server, proof);
    }

    fn send(&mut self, message: ClientMessage) {
        if let Some(stream) = self.0.host().stream {
            self.0.send(stream, message);
        }
    }

    fn expose(&mut self, generation: Generation) {
        self.0.host().expose(generation);
        self.0.exposed(generation);
    }

    fn expose_filling(&mut self, generation: Generation) {
        self.0.host().expose_filling(generation);
        self.0.exposed_filling(generation);
    }

    fn fence(&mut self, generation: Generation) {
        let before = self.0.host().fence(generation);
        self.0.fenced(generation, before);
    }

    fn seal(&mut self, generation: Generation) {
        self.0.host().sealing = Some(generation);
        self.0.seal(generation);
    }

    fn prove(&mut self, generation: Generation, nonce: Nonce) {
        self.0.host().proving.push((generation, nonce));
        self.0.prove(generation, nonce);
    }

    fn compare(&mut self, witnesses: Box<Witnesses>) {
        self.0.compare(witnesses);
    }

    fn read(&mut self, order: ReadOrder) {
        self.0.read(order);
    }

    fn measure(&mut self, seq: OpSeq, attempt: Attempt) {
        self.0.measure(seq, attempt);
    }

    fn stop_read(&mut self) {
        self.0.stopping_read();
        self.0.host().stop_read();
    }

    fn install(&mut self, seq: OpSeq, attempt: Attempt) {
        self.0.host().installing = Some((seq, attempt));
        self.0.install(seq, attempt);
    }

    fn unstage(&mut self) {
        self.0.host().unstage();
        self.0.unstaged();
    }

    fn offload(&mut self, version: Version, generation: Generation) {
        self.0.host().offloading = Some((version, generation));
        self.0.offload(version, generation);
    }

    fn stop_offload(&mut self) {
        self.0.host().offloading = None;
    }

    fn seed(&mut self, version: Version, ask: u64, deadline: Span) {
        self.0.host().seeding.insert(ask, version);
        self.0.seed(version, ask, deadline);
    }

    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        self.0.answer(seq, result);
    }

    fn end(&mut self, error: Option<CallError>) {
        self.0.end(error);
    }
}
