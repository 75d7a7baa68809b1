//! The target's machine: whose writes count, and when its memory is the version.
//!
//! Reading order: this file (what happens to a target), `grants` (which of them are open), `validity`.

mod grants;
mod validity;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::push::grant::{ParcelsWritten, PushGrant};
use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::push::order::{PushCommand, PushOrder};
use crate::push::report::{PushReport, TargetState};
use crate::{Generation, Safeguard, Safeguards, Span, Time, Version};

/// What the target's worker has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetOutput {
    /// Stop serving, then call [`PushTarget::handle_paused`].
    Pause,
    /// Open this grant at the data port, and see that the sender alone learns its secret.
    Open(PushGrant),
    /// Close this grant at the data port. No write of it is under way any more when this is done.
    Close {
        /// The grant's number.
        grant: u64,
    },
    /// Compare the memory with the version, then call [`PushTarget::handle_verified`].
    Verify {
        /// The generation that is compared.
        generation: Generation,
        /// The version.
        version: Version,
    },
    /// Serve this version.
    Resume {
        /// The version.
        version: Version,
    },
    /// Send this to a driver.
    Tell {
        /// The driver's number: of the newest order, or of an earlier driver that has to learn of a later one.
        driver: u64,
        /// What the target is.
        report: PushReport,
    },
}

/// A worker's memory, which senders fill.
///
/// - Inputs: [`PushTarget::handle_order`], [`PushTarget::handle_written`], [`PushTarget::handle_paused`],
///   [`PushTarget::handle_verified`], [`PushTarget::handle_slept`], [`PushTarget::handle_woken`];
///   [`PushTarget::handle_timeout`] at [`PushTarget::next_timeout`].
/// - Then [`PushTarget::poll_output`] until it is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushTarget {
    id: TargetId,
    /// The newest order that was heard: its push, and its revision.
    heard: (PushNumber, u64),
    state: TargetState,
    /// The version of that push.
    version: Option<Version>,
    generation: Generation,
    routes: BTreeMap<u32, SenderId>,
    /// Parcels that count as written, and who wrote them.
    written: BTreeMap<u32, SenderId>,
    differing: BTreeMap<u32, SenderId>,
    /// Open grants, by number.
    grants: BTreeMap<u64, PushGrant>,
    /// Grants so far.
    granted: u64,
    /// Reports so far.
    told: u64,
    /// When grants are closed unless a driver is heard.
    until: Option<Time>,
    safeguards: Safeguards,
    #[serde(skip)]
    outputs: VecDeque<TargetOutput>,
}

impl PushTarget {
    /// A target whose memory is no version yet. `generation` is the memory's count of changes so far.
    pub fn new(id: TargetId, generation: Generation, safeguards: Safeguards) -> Self {
        Self {
            id,
            heard: Default::default(),
            state: TargetState::Empty,
            version: None,
            generation,
            routes: BTreeMap::new(),
            written: BTreeMap::new(),
            differing: BTreeMap::new(),
            grants: BTreeMap::new(),
            granted: 0,
            told: 0,
            until: None,
            safeguards,
            outputs: VecDeque::new(),
        }
    }

    /// An order came in. An earlier order than one that was heard only makes the target say which one it has heard.
    pub fn handle_order(&mut self, now: Time, order: PushOrder) {
        if order.target != self.id && self.safeguards.on(Safeguard::OwnTarget) {
            return;
        }
        let earlier = order.number() < self.heard;
        if earlier && self.safeguards.on(Safeguard::NewestOrder) {
            return self.tell_driver(order.push.driver);
        }
        let (again, same_push) = (order.number() == self.heard, order.push == self.heard.0);
        self.heard = order.number();
        if self.is_filled() || !same_push {
            self.until = Some(now + order.lease);
        }
        match order.command {
            _ if again => {}
            PushCommand::Dismiss => self.give_up(),
            PushCommand::Fill { routes } if !same_push => self.begin(order.version, routes),
            PushCommand::Fill { routes } => self.reroute(routes),
        }
        self.tell();
    }

    /// The worker has stopped serving.
    pub fn handle_paused(&mut self) {
        if self.state == TargetState::Pausing {
            self.state = TargetState::Filling;
            self.generation = self.generation.next();
            self.go_on();
            self.tell();
        }
    }

    /// A sender says what it has written. Writes under a grant that is closed count for nothing, whenever they were done.
    pub fn handle_written(&mut self, word: &ParcelsWritten) {
        if self.state != TargetState::Filling || word.target != self.id {
            return;
        }
        let open = self.grants.get(&word.grant).filter(|grant| grant.sender == word.sender);
        let allowed = match open {
            Some(grant) => grant.parcels.clone(),
            None if self.safeguards.on(Safeguard::OpenGrantsCount) => return,
            None => self.routes.keys().copied().collect(),
        };
        let before = self.written.len();
        for parcel in word.parcels.intersection(&allowed) {
            self.written.entry(*parcel).or_insert(word.sender);
        }
        if self.written.len() > before {
            self.go_on();
            self.tell();
        }
    }

    /// The content was compared: the parcels that differ from the version.
    pub fn handle_verified(&mut self, generation: Generation, differing: &BTreeSet<u32>) {
        if self.state != TargetState::Verifying || generation != self.generation {
            return;
        }
        let trusts = !self.safeguards.on(Safeguard::PushVerified);
        if differing.is_empty() || trusts {
            (self.state, self.until) = (TargetState::Ready, None);
            let resume = |version| TargetOutput::Resume { version };
            self.outputs.extend(self.version.map(resume));
        } else {
            let wrote = |parcel: &u32| Some((*parcel, self.written.get(parcel).copied()?));
            self.differing = differing.iter().filter_map(wrote).collect();
            self.written.retain(|parcel, _| !differing.contains(parcel));
            // Grants open with the driver's next routes.
            self.state = TargetState::Filling;
            self.generation = self.generation.next();
        }
        self.tell();
    }

    /// The worker gives its memory away. Nobody may write it from now on.
    pub fn handle_slept(&mut self) {
        if self.safeguards.on(Safeguard::SleepCloses) {
            self.close_all();
        }
        (self.state, self.until) = (TargetState::Asleep, None);
        self.generation = self.generation.next();
        self.tell();
    }

    /// The worker has memory again, which is no version.
    pub fn handle_woken(&mut self) {
        if self.state == TargetState::Asleep {
            self.forget();
            self.tell();
        }
    }

    /// When [`PushTarget::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Time> {
        self.until
    }

    /// The driver was silent for a lease: nobody may write any more.
    pub fn handle_timeout(&mut self, now: Time) {
        let over = self.until.is_some_and(|until| until <= now);
        if over && self.safeguards.on(Safeguard::GrantsEnd) {
            self.give_up();
            self.tell();
        }
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<TargetOutput> {
        self.outputs.pop_front()
    }

    /// The version that may be served.
    pub fn ready(&self) -> Option<Version> {
        self.version.filter(|_| self.state == TargetState::Ready)
    }

    /// Where the target is.
    pub fn state(&self) -> TargetState {
        self.state
    }

    /// The lease that an order gives counts while the memory is being filled.
    fn is_filled(&self) -> bool {
        use TargetState::{Filling, Pausing, Verifying};
        matches!(self.state, Pausing | Filling | Verifying)
    }

    /// A push begins.
    fn begin(&mut self, version: Version, routes: BTreeMap<u32, SenderId>) {
        self.close_all();
        if self.state == TargetState::Asleep {
            self.until = None;
            return;
        }
        self.written.clear();
        self.differing.clear();
        (self.version, self.routes) = (Some(version), routes);
        self.state = TargetState::Pausing;
        self.outputs.push_back(TargetOutput::Pause);
    }

    /// Some parcels have other senders now.
    fn reroute(&mut self, routes: BTreeMap<u32, SenderId>) {
        if self.is_filled() {
            self.routes = routes;
        }
        if self.state == TargetState::Filling {
            self.go_on();
        }
    }

    /// Grants as the routes have them; once all is written, the end of all grants.
    fn go_on(&mut self) {
        let missing = self.routes.keys().any(|parcel| !self.written.contains_key(parcel));
        if missing {
            self.close_moved();
            self.open_missing();
        } else {
            if self.safeguards.on(Safeguard::AllClosed) {
                self.close_all();
            }
            self.state = TargetState::Verifying;
            let generation = self.generation;
            let verify = |version| TargetOutput::Verify { generation, version };
            self.outputs.extend(self.version.map(verify));
        }
    }

    /// The push is over here. What is ready stays.
    fn give_up(&mut self) {
        self.close_all();
        if self.is_filled() {
            self.forget();
        }
        self.until = None;
    }

    /// The memory is no version.
    fn forget(&mut self) {
        self.state = TargetState::Empty;
        self.written.clear();
        self.differing.clear();
        self.routes.clear();
    }

    /// What the target says of itself.
    pub fn report(&self) -> PushReport {
        PushReport {
            target: self.id,
            push: self.heard.0,
            revision: self.heard.1,
            sequence: self.told,
            generation: self.generation,
            state: self.state,
            written: self.written.keys().copied().collect(),
            differing: self.differing.clone(),
            grants: self.grants.values().cloned().collect(),
        }
    }

    fn tell(&mut self) {
        self.tell_driver(self.heard.0.driver);
    }

    fn tell_driver(&mut self, driver: u64) {
        self.told += 1;
        let report = self.report();
        self.outputs.push_back(TargetOutput::Tell { driver, report });
    }

    /// How long from `now` on grants may stay open; `None`: none is open.
    pub fn open_for(&self, now: Time) -> Option<Span> {
        self.until.filter(|_| !self.grants.is_empty()).map(|until| until - now)
    }
}
