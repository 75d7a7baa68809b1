//! The control thread as the host of its session.

use weightcast_protocol::message::{Answer, ClientMessage, Witnesses};
use weightcast_protocol::session::{Output, ReadOrder, SessionHost, drive};
use weightcast_protocol::{
    Attempt, CallError, Generation, Nonce, OpSeq, Span, TermProof, Time, Version,
};

use super::Control;

/// The control thread, at the time for which it carries out outputs.
struct ControlHost<'a> {
    control: &'a mut Control,
    now: Time,
}

impl Control {
    /// Carries out the session's outputs, in order.
    pub(super) fn obey_session(&mut self, now: Time) {
        drive(&mut ControlHost { control: self, now });
    }
}

impl SessionHost for ControlHost<'_> {
    fn next_output(&mut self) -> Option<Output> {
        self.control.session.poll_output()
    }

    fn connect(&mut self, server: usize) {
        self.control.connect(server);
    }

    fn probe(&mut self, server: usize, proof: TermProof) {
        self.control.probe(server, proof);
    }

    fn send(&mut self, message: ClientMessage) {
        // Memory that others write is served to nobody until it is whole.
        if matches!(message, ClientMessage::Filling { .. }) && self.control.memory.is_pushed_to() {
            return;
        }
        self.control.send(message);
    }

    fn expose(&mut self, generation: Generation) {
        self.control.memory.expose(generation);
    }

    fn expose_filling(&mut self, generation: Generation) {
        self.control.memory.expose_filling(generation);
    }

    fn fence(&mut self, _: Generation) {
        self.control.memory.fence();
    }

    fn seal(&mut self, generation: Generation) {
        self.control.memory.seal(generation);
    }

    fn prove(&mut self, generation: Generation, nonce: Nonce) {
        self.control.memory.prove(generation, nonce);
    }

    fn compare(&mut self, witnesses: Box<Witnesses>) {
        tracing::warn!("what was published is refused, and nobody can read it");
        self.control.shared.figures.count(|model| model.refusals += 1);
        self.control.memory.refused(*witnesses, self.control.session.generation());
    }

    fn read(&mut self, order: ReadOrder) {
        let deadline = self.control.clock.instant(order.deadline).into_std();
        self.control.memory.start_read(order, deadline);
    }

    fn measure(&mut self, seq: OpSeq, attempt: Attempt) {
        if let Some(progress) = self.control.memory.progress() {
            self.control.session.handle_progress(self.now, seq, attempt, progress);
        }
    }

    fn stop_read(&mut self) {
        self.control.memory.stop_read();
    }

    fn install(&mut self, seq: OpSeq, attempt: Attempt) {
        self.control.memory.install(seq, attempt);
    }

    fn unstage(&mut self) {
        self.control.memory.unstage();
    }

    fn offload(&mut self, version: Version, generation: Generation) {
        self.control.offloader.start(version, generation);
    }

    fn stop_offload(&mut self) {
        self.control.offloader.stop();
    }

    fn seed(&mut self, version: Version, ask: u64, deadline: Span) {
        self.control.seeder.start(version, ask, deadline);
    }

    fn answer(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        self.control.done(seq, result);
    }

    fn end(&mut self, _: Option<CallError>) {
        self.control.closed();
    }
}
