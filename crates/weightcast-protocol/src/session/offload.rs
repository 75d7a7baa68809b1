//! Offloading: the shard holds a part of the last copy of a retained version, and wants to give it
//! up. The runtime copies it aside and opens an offload replica, which has a session of its own;
//! this one only starts the copying, stops it before the memory may change, and reports a failure.

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{Generation, Span, Time, Version};

/// An offload that the server asked for.
#[derive(Clone, Debug)]
pub(super) struct Offload {
    version: Version,
    generation: Generation,
    /// Why it failed, once it has.
    failed: Option<String>,
    /// It was asked for again since: perhaps because the copy was let go of meanwhile.
    again: bool,
}

impl Offload {
    /// Whether it is a copy of this, and has not failed.
    fn runs(&self, version: Version, generation: Generation) -> bool {
        (self.version, self.generation) == (version, generation) && self.failed.is_none()
    }
}

impl Session {
    /// The server wants the memory to be copied aside. It may ask again after a reconnect, while the
    /// copying goes on, or when an earlier copy came to nothing: that one may have come too late, for a
    /// call that had ended, so what became of it says nothing of the next.
    pub(super) fn asked_to_offload(&mut self, version: Version, generation: Generation) {
        let runs = |offload: &&mut Offload| offload.runs(version, generation);
        if let Some(offload) = self.offload.as_mut().filter(runs) {
            offload.again = true;
            return;
        }
        let mut offload = Offload { version, generation, failed: None, again: false };
        if (self.memory.version(), self.memory.generation()) != (Some(version), generation) {
            offload.failed = Some(format!("it does not hold version {version}"));
            self.offload = Some(offload);
            return self.send_offload_failed();
        }
        self.offload = Some(offload);
        self.outputs.push_back(Output::Offload { version, generation });
    }

    /// The memory could not be copied, or no session be opened for the copy. Void if the server
    /// has not asked for it, or the memory has been given up since. Of each copy that was begun one end is
    /// told, and told once: this one or that of [`handle_offload_over`](Self::handle_offload_over). By what is told
    /// a second time the session would take the next copy for one that has ended, and not stop it (S3).
    pub fn handle_offload_failed(
        &mut self,
        now: Time,
        version: Version,
        generation: Generation,
        reason: String,
    ) {
        self.tick(now);
        let same = |o: &&mut Offload| (o.version, o.generation) == (version, generation);
        if let Some(offload) = self.offload.as_mut().filter(same) {
            offload.failed.get_or_insert(reason);
            self.send_offload_failed();
        }
    }

    /// The copy was made, and let go of since: another one is made when it is asked for, or now if it
    /// was while this one was there. The server may not have meant another one: then it refuses that.
    pub fn handle_offload_over(&mut self, now: Time, version: Version, generation: Generation) {
        self.tick(now);
        let runs = |offload: &mut Offload| offload.runs(version, generation);
        if self.offload.take_if(runs).is_some_and(|offload| offload.again) {
            self.asked_to_offload(version, generation);
        }
    }

    pub(super) fn send_offload_failed(&mut self) {
        let Some(offload) = &self.offload else { return };
        if let Some(reason) = offload.failed.clone() {
            let (version, generation) = (offload.version, offload.generation);
            self.send(ClientMessage::OffloadFailed { version, generation, reason });
        }
    }

    /// The memory may change or was refused: whoever copies it has to stop.
    pub(super) fn stop_offload(&mut self) {
        // Also of one that failed: an older copy of the version may have, while a new one is made.
        if self.offload.take().is_some() {
            self.outputs.push_back(Output::StopOffload);
        }
    }

    /// This is an offload replica's session, and it is not needed any more.
    pub(super) fn released(&mut self, now: Time, deadline: Span) {
        self.close(now, deadline);
    }
}
