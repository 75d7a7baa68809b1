//! Numbers that the server gives out, each once.

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Term};

/// Separates lives of registers from other hashes of the same numbers.
const REGISTERS: &str = "weightcast 2026 lives of registers of fleets";

/// The last numbers given out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Numbers {
    /// Number of the last group that was founded here, in the server's term.
    pub(in crate::server) last_incarnation: Incarnation,
    /// Last place in the queue of calls that wait for a model to change.
    last_place: u64,
    /// Registers of fleets that were made in this life of the server.
    registers: u64,
}

impl Numbers {
    /// A new place, at the end of the queue.
    pub(in crate::server) fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// The life of a new register of a fleet: another one for each register, also for that of a model that was forgotten
    /// and came back. Two are equal by a chance of one in four billion. Never zero, which numbers no driver.
    pub(in crate::server) fn next_register(&mut self, server_life: u64, term: Term) -> u32 {
        self.registers += 1;
        let mut hash = blake3::Hasher::new_derive_key(REGISTERS);
        for number in [server_life, term.0, self.registers] {
            hash.update(&number.to_le_bytes());
        }
        let mut life = [0; 4];
        hash.finalize_xof().fill(&mut life);
        u32::from_le_bytes(life).max(1)
    }

    /// A number for a seed request, different from those of earlier terms: a group that comes over
    /// may still report on an old request. Never zero, which stands for a seed that came over.
    pub(in crate::server) fn next_ask(&mut self, term: Term) -> u64 {
        loop {
            self.last_incarnation = self.last_incarnation.next();
            let ask = term.0.rotate_left(32) ^ self.last_incarnation.number;
            if ask != 0 {
                return ask;
            }
        }
    }
}
