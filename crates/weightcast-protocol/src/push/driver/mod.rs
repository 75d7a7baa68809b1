//! The driver's machine: it keeps the routes of all targets, and changes those that have to change.
//!
//! Reading order: this file (what happens to a push), `hearing` (what targets and senders say), `moving` (which sender
//! writes what), `ending`, `validity`.

mod ending;
mod hearing;
mod moving;
mod validity;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::push::config::PushConfig;
use crate::push::grant::PushGrant;
use crate::push::loads::SenderLoads;
use crate::push::names::{PushNumber, SenderId, TargetId};
use crate::push::order::{PushCommand, PushOrder};
use crate::push::outcome::{PushResult, TargetEnd};
use crate::push::parcel::TargetNeeds;
use crate::push::report::PushReport;
use crate::push::routes::TargetRoutes;
use crate::push::sender::SendRefused;
use crate::{Safeguard, Time};

/// Something that happens to a push.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PushInput {
    /// Targets take part from now on. A target that takes part already is not taken in again.
    Joins(Vec<TargetNeeds>),
    /// A target does not want the version any more.
    Leaves {
        /// The target.
        target: TargetId,
    },
    /// A target died.
    TargetLost {
        /// The target.
        target: TargetId,
    },
    /// A sender holds parcels of targets that take part.
    SenderHolds {
        /// The sender.
        sender: SenderId,
        /// Which parcels, by target.
        parcels: BTreeMap<TargetId, BTreeSet<u32>>,
    },
    /// A sender died, or is thought to be dead.
    SenderLost {
        /// The sender.
        sender: SenderId,
    },
    /// A target says what it is.
    Reported(PushReport),
    /// A sender does not write.
    Refused(SendRefused),
    /// The caller does not want the push any more.
    Cancel,
}

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutput {
    /// Send this to the target that it names. It comes again by itself, so it may be lost.
    Order(PushOrder),
    /// Tell the sender that it names of this grant. It comes again by itself, so it may be lost.
    Send(PushGrant),
    /// The push is over at all targets.
    Ended(PushResult),
}

/// One push, as its driver sees it.
///
/// - Inputs: [`PushDriver::handle`], [`PushDriver::handle_timeout`] at [`PushDriver::next_timeout`].
/// - Then [`PushDriver::poll_output`] until it is `None`.
///
/// A push ends once it has ended at all targets that have joined; who joins later needs another push.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PushDriver {
    config: PushConfig,
    targets: BTreeMap<TargetId, TargetRoutes>,
    lost: BTreeSet<SenderId>,
    loads: SenderLoads,
    over: bool,
    #[serde(skip)]
    outputs: VecDeque<PushOutput>,
}

impl PushDriver {
    /// A push without targets yet.
    pub fn new(config: PushConfig) -> Self {
        Self {
            config,
            targets: BTreeMap::new(),
            lost: BTreeSet::new(),
            loads: SenderLoads::default(),
            over: false,
            outputs: VecDeque::new(),
        }
    }

    /// Something happens.
    pub fn handle(&mut self, now: Time, input: PushInput) {
        if self.over {
            return;
        }
        match input {
            PushInput::Joins(needs) => needs.into_iter().for_each(|one| self.join(now, one)),
            PushInput::Leaves { target } => self.part(now, target, TargetEnd::Left),
            PushInput::TargetLost { target } => self.part(now, target, TargetEnd::Lost),
            PushInput::SenderHolds { sender, parcels } => self.hold(sender, &parcels),
            PushInput::SenderLost { sender } => self.lose_sender(now, sender),
            PushInput::Reported(report) => self.hear(now, report),
            PushInput::Refused(refused) => self.hear_refusal(now, &refused),
            PushInput::Cancel => self.cancel(now),
        }
        self.finish();
    }

    /// When [`PushDriver::handle_timeout`] is due.
    pub fn next_timeout(&self) -> Option<Time> {
        let open = self.targets.values().filter(|target| target.is_open());
        open.map(|target| target.again.min(self.end_of(target))).min()
    }

    /// Targets that were not heard in time end; the others are told again.
    pub fn handle_timeout(&mut self, now: Time) {
        let open = self.targets.iter().filter(|(_, target)| target.is_open());
        let open: Vec<TargetId> = open.map(|(target, _)| *target).collect();
        for target in open {
            let routes = &self.targets[&target];
            let silent = routes.heard_at + self.config.silence <= now;
            if self.end_of(routes) <= now {
                let end = if silent { TargetEnd::Silent } else { TargetEnd::Deadline };
                self.end(now, target, end);
            } else if routes.again <= now {
                self.tell(now, target);
                self.remind_senders(target);
            }
        }
        self.finish();
    }

    /// What to do next; call until it is `None`.
    pub fn poll_output(&mut self) -> Option<PushOutput> {
        self.outputs.pop_front()
    }

    /// The push.
    pub fn number(&self) -> PushNumber {
        self.config.push
    }

    /// What the push is like.
    pub fn config(&self) -> &PushConfig {
        &self.config
    }

    /// Targets at which the push is not over.
    pub fn open(&self) -> impl Iterator<Item = TargetId> {
        self.targets.iter().filter(|(_, target)| target.is_open()).map(|(target, _)| *target)
    }

    /// Who is to write each parcel of a target.
    pub fn routes(&self, target: TargetId) -> Option<&BTreeMap<u32, SenderId>> {
        self.targets.get(&target).map(|target| &target.routes)
    }

    /// Bytes that a sender has still to write, to all targets together.
    pub fn load(&self, sender: SenderId) -> u64 {
        self.loads.of(sender)
    }

    /// When a target ends that is not heard, or that takes too long.
    fn end_of(&self, target: &TargetRoutes) -> Time {
        if !self.config.safeguards.on(Safeguard::PushDeadline) {
            return Time(u64::MAX);
        }
        (target.heard_at + self.config.silence).min(target.joined + self.config.deadline)
    }

    fn join(&mut self, now: Time, needs: TargetNeeds) {
        let target = needs.target;
        if self.targets.contains_key(&target) {
            return;
        }
        let turn = self.targets.len() as u64;
        let all = (0..needs.parcels.len() as u32).collect();
        self.targets.insert(target, TargetRoutes::new(needs, turn, now));
        self.assign(now, target, all, None);
        self.others_undisturbed(now, target);
    }

    /// A target leaves or is lost. Only its own routes go.
    fn part(&mut self, now: Time, target: TargetId, end: TargetEnd) {
        self.end(now, target, end);
        self.others_undisturbed(now, target);
    }

    /// Tells a target what is to be.
    fn tell(&mut self, now: Time, target: TargetId) {
        let ask_every = self.config.ask_every;
        let Some(of) = self.targets.get_mut(&target) else { return };
        of.again = now + ask_every;
        let (revision, routes) = (of.revision, of.routes.clone());
        self.order(target, revision, PushCommand::Fill { routes });
    }

    fn order(&mut self, target: TargetId, revision: u64, command: PushCommand) {
        let PushConfig { push, version, lease, .. } = self.config;
        let order = PushOrder { push, target, revision, version, command, lease };
        self.outputs.push_back(PushOutput::Order(order));
    }

    /// Tells senders of the grants under which parcels are missing.
    fn remind_senders(&mut self, target: TargetId) {
        let Some(of) = self.targets.get(&target) else { return };
        let owes = |grant: &&PushGrant| {
            let missing = |parcel: &u32| !of.written.contains(parcel);
            !self.lost.contains(&grant.sender) && grant.parcels.iter().any(missing)
        };
        let owing: Vec<_> = of.grants.iter().filter(owes).cloned().collect();
        self.outputs.extend(owing.into_iter().map(PushOutput::Send));
    }
}
