//! Proofs: the server asks whether the memory holds the bytes that it is said to hold. The runtime
//! sums a sample; nothing is said of memory that has changed hands meanwhile.

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{Generation, Nonce, Time};

impl Session {
    pub(super) fn challenged(&mut self, generation: Generation, nonce: Nonce) {
        if self.holds_at(generation) {
            self.outputs.push_back(Output::Prove { generation, nonce });
        }
    }

    /// A sample of the memory has been summed.
    pub fn handle_proved(&mut self, now: Time, generation: Generation, nonce: Nonce, sum: u64) {
        self.tick(now);
        if self.holds_at(generation) {
            self.send(ClientMessage::Proof { generation, nonce, sum });
        }
    }

    fn holds_at(&self, generation: Generation) -> bool {
        self.version().is_some() && self.generation() == generation
    }
}
