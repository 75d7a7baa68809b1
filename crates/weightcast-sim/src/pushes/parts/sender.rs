//! A sender: its machine, its memory, and the writes that it makes.

use std::collections::VecDeque;

use weightcast_protocol::push::{PushGrant, PushSender, SenderId};
use weightcast_protocol::{Safeguards, Time};

use crate::pushes::parts::target::SPOILED;

/// Writes under one grant.
#[derive(Clone, Debug)]
pub(crate) struct SendJob {
    pub(crate) grant: PushGrant,
    /// What is still to write: parcels, and the next chunk of the first.
    pub(crate) parcels: VecDeque<u32>,
    pub(crate) chunk: usize,
}

/// A sender's place: who lives there, and its memory.
#[derive(Debug)]
pub(crate) struct SimSender {
    pub(crate) id: SenderId,
    pub(crate) alive: bool,
    pub(crate) machine: PushSender,
    /// The version that its memory has.
    pub(crate) memory: u64,
    pub(crate) jobs: VecDeque<SendJob>,
    /// A write is under way, whose answer goes on with the next one.
    pub(crate) writing: bool,
    /// When the platform knows that the sender is dead, or that it is there.
    pub(crate) known: Time,
    pub(crate) suspended_until: Time,
    pub(crate) slow_until: Time,
    pub(crate) late_until: Time,
    pub(crate) cut_until: Time,
    /// The next write brings a wrong bit.
    pub(crate) flips: bool,
    /// When something last struck it, or ceased to.
    pub(crate) upset_at: Time,
}

impl SimSender {
    /// A place where nobody lives yet.
    pub(crate) fn absent(safeguards: Safeguards) -> Self {
        Self {
            id: SenderId(0),
            alive: false,
            machine: PushSender::new(SenderId(0), safeguards),
            memory: SPOILED,
            jobs: VecDeque::new(),
            writing: false,
            known: Time(0),
            suspended_until: Time(0),
            slow_until: Time(0),
            late_until: Time(0),
            cut_until: Time(0),
            flips: false,
            upset_at: Time(0),
        }
    }

    /// Whether messages reach it.
    pub(crate) fn is_reached(&self, now: Time) -> bool {
        self.cut_until <= now
    }

    /// Whether the platform lists it.
    pub(crate) fn is_listed(&self, now: Time) -> bool {
        self.alive == (self.known <= now) && self.id != SenderId(0)
    }
}
