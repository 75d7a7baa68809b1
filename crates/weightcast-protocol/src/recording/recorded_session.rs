//! The inputs of a session, past its recorder.

use crate::message::{Call, ReadFailure, ServerMessage};
use crate::recording::machine::RecordedMachine;
use crate::session::{ReadProgress, Session, SessionInput};
use crate::{
    Attempt, CallError, Generation, Nonce, OpSeq, ShardSums, Span, Term, TermProof, Time, Version,
};

/// A method for each input, which has the session's own name and arguments.
macro_rules! inputs {
    ($($input:ident($($argument:ident: $Type:ty),*) is $Variant:ident $made:tt;)+) => {
        impl RecordedMachine<Session> {$(
            #[doc = concat!("[`Session::", stringify!($input), "`].")]
            pub fn $input(&mut self, now: Time, $($argument: $Type),*) {
                self.take(now, SessionInput::$Variant $made);
            }
        )+}
    };
}

inputs! {
    close(deadline: Span) is Close { deadline };
    handle_connected() is Connected {};
    handle_disconnected() is Disconnected {};
    handle_message(message: ServerMessage) is Message (Box::new(message));
    handle_probed(server: usize, told: Term, acts: Option<TermProof>)
        is Probed { server, told, acts };
    handle_read(seq: OpSeq, attempt: Attempt, result: Result<ShardSums, ReadFailure>)
        is Read { seq, attempt, result };
    handle_progress(seq: OpSeq, attempt: Attempt, progress: ReadProgress)
        is Progress { seq, attempt, progress };
    handle_installed(seq: OpSeq, attempt: Attempt) is Installed { seq, attempt };
    handle_sealed(generation: Generation, sums: ShardSums) is Sealed { generation, sums };
    handle_proved(generation: Generation, nonce: Nonce, sum: u64)
        is Proved { generation, nonce, sum };
    handle_offload_failed(version: Version, generation: Generation, reason: String)
        is OffloadFailed { version, generation, reason };
    handle_offload_over(version: Version, generation: Generation)
        is OffloadOver { version, generation };
    handle_seed_failed(ask: u64) is SeedFailed { ask };
    handle_timeout() is Timeout {};
}

impl RecordedMachine<Session> {
    /// [`Session::call`].
    ///
    /// # Errors
    /// Those of the session.
    pub fn call(&mut self, now: Time, call: Call, deadline: Span) -> Result<OpSeq, CallError> {
        self.note(now, &SessionInput::Call { call: call.clone(), deadline });
        self.noted().call(now, call, deadline)
    }

    /// [`Session::handle_refused`], which asks for no time.
    pub fn handle_refused(&mut self, now: Time, error: CallError) {
        self.take(now, SessionInput::Refused { error });
    }

    /// [`Session::handle_seal_failed`].
    pub fn handle_seal_failed(&mut self, now: Time, generation: Generation, reason: &str) {
        let reason = reason.to_owned();
        self.take(now, SessionInput::SealFailed { generation, reason });
    }
}
