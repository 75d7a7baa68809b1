//! The sender's machine: what it may write, and when it must stop.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::limits::PUSH_TASKS;
use crate::push::grant::{ParcelsWritten, PushGrant};
use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::{Safeguard, Safeguards, Version};

/// Why a sender does not write what a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SendRefusal {
    /// It does not hold the version, or no longer: it writes nothing of this push.
    NotHeld,
    /// A write failed: the target is out of reach, or the grant is closed.
    Failed,
    /// It has [`PUSH_TASKS`] grants already.
    Busy,
}

/// A sender's word to the driver: it does not write, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SendRefused {
    /// The push.
    pub push: PushNumber,
    /// Whose grant it is.
    pub target: TargetId,
    /// The grant's number.
    pub grant: u64,
    /// The sender.
    pub sender: SenderId,
    /// Why.
    pub refusal: SendRefusal,
}

/// What the sender's worker has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// Write the parcels of this grant, in order. Before each write ask [`PushSender::may_write`]; tell each parcel that was
    /// answered ([`PushSender::handle_parcel`]), and a write that was not ([`PushSender::handle_failed`]).
    Write(PushGrant),
    /// Send this to the target.
    Tell(ParcelsWritten),
    /// Send this to the driver of the push.
    Refuse(SendRefused),
}

/// A grant that is being used.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SendTask {
    grant: PushGrant,
    written: BTreeSet<u32>,
}

/// A worker that holds a version, and writes parts of it into the memory of others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushSender {
    id: SenderId,
    holds: Option<Version>,
    /// The newest push of each target whose grants came.
    newest: BTreeMap<TargetId, PushNumber>,
    tasks: BTreeMap<(TargetId, u64), SendTask>,
    safeguards: Safeguards,
    #[serde(skip)]
    outputs: VecDeque<SenderOutput>,
}

impl PushSender {
    /// A sender that holds nothing yet.
    pub fn new(id: SenderId, safeguards: Safeguards) -> Self {
        Self {
            id,
            holds: None,
            newest: BTreeMap::new(),
            tasks: BTreeMap::new(),
            safeguards,
            outputs: VecDeque::new(),
        }
    }

    /// The memory holds this version, and does not change until [`PushSender::withdraw`].
    pub fn hold(&mut self, version: Version) {
        self.withdraw();
        self.holds = Some(version);
    }

    /// The memory is about to change: nothing more is written from it. The caller waits for the write that is under way.
    pub fn withdraw(&mut self) {
        self.holds = None;
        self.newest.clear();
        if self.safeguards.on(Safeguard::SenderStops) {
            for task in std::mem::take(&mut self.tasks).into_values() {
                self.refuse(&task.grant, SendRefusal::NotHeld);
            }
        }
    }

    /// A grant came in, perhaps not for the first time.
    pub fn handle_grant(&mut self, grant: PushGrant) {
        let newest = self.newest.get(&grant.target).copied().unwrap_or_default();
        if grant.sender != self.id || grant.push < newest {
            return;
        }
        if self.holds != Some(grant.version) {
            return self.refuse(&grant, SendRefusal::NotHeld);
        }
        if grant.push > newest {
            self.newest.insert(grant.target, grant.push);
            self.tasks.retain(|(target, _), _| *target != grant.target);
        }
        let place = (grant.target, grant.number);
        if self.tasks.contains_key(&place) {
            self.tell(place);
        } else if self.tasks.len() >= PUSH_TASKS {
            self.refuse(&grant, SendRefusal::Busy);
        } else {
            self.outputs.push_back(SenderOutput::Write(grant.clone()));
            self.tasks.insert(place, SendTask { grant, written: BTreeSet::new() });
        }
    }

    /// Whether the next write under this grant may be sent.
    pub fn may_write(&self, target: TargetId, grant: u64) -> bool {
        self.tasks.contains_key(&(target, grant))
    }

    /// All writes of a parcel were answered.
    pub fn handle_parcel(&mut self, target: TargetId, grant: u64, parcel: u32) {
        let Some(task) = self.tasks.get_mut(&(target, grant)) else { return };
        if task.grant.parcels.contains(&parcel) && task.written.insert(parcel) {
            self.tell((target, grant));
        }
    }

    /// A write under this grant was refused, or not answered.
    pub fn handle_failed(&mut self, target: TargetId, grant: u64) {
        if let Some(task) = self.tasks.remove(&(target, grant)) {
            self.refuse(&task.grant, SendRefusal::Failed);
        }
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<SenderOutput> {
        self.outputs.pop_front()
    }

    /// The version that the sender can give.
    pub fn holds(&self) -> Option<Version> {
        self.holds
    }

    /// Says again what was written under a grant, if anything was: the word may have been lost.
    fn tell(&mut self, place: (TargetId, u64)) {
        let Some(task) = self.tasks.get(&place).filter(|task| !task.written.is_empty()) else {
            return;
        };
        let (target, grant) = place;
        let parcels = task.written.clone();
        let word = ParcelsWritten { target, grant, sender: self.id, parcels };
        self.outputs.push_back(SenderOutput::Tell(word));
    }

    fn refuse(&mut self, grant: &PushGrant, refusal: SendRefusal) {
        let PushGrant { push, target, number, .. } = *grant;
        let refused = SendRefused { push, target, grant: number, sender: self.id, refusal };
        self.outputs.push_back(SenderOutput::Refuse(refused));
    }
}
