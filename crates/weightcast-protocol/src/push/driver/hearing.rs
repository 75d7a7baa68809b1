//! What targets and senders say.

use std::collections::{BTreeMap, BTreeSet};

use crate::push::driver::{PushDriver, PushOutput};
use crate::push::names::{SenderId, TargetId};
use crate::push::outcome::TargetEnd;
use crate::push::report::{PushReport, TargetState};
use crate::push::sender::{SendRefusal, SendRefused};
use crate::{Safeguard, Time};

impl PushDriver {
    /// A target says what it is. What it said before, and says late, counts no more.
    pub(super) fn hear(&mut self, now: Time, report: PushReport) {
        let target = report.target;
        let Some(of) = self.targets.get_mut(&target).filter(|of| of.is_open()) else { return };
        if report.sequence <= of.heard {
            return;
        }
        (of.heard, of.heard_at) = (report.sequence, now);
        if report.push > self.config.push {
            return self.end(now, target, TargetEnd::Superseded);
        }
        if report.push < self.config.push {
            return; // our order is still under way
        }
        let progress = self.count(target, &report.written);
        let whole = report.written.len() == self.targets[&target].parcels.len();
        let trusts = whole && !self.config.safeguards.on(Safeguard::ReadyAwaited);
        match report.state {
            TargetState::Ready => self.end(now, target, TargetEnd::Ready),
            TargetState::Asleep => self.end(now, target, TargetEnd::Asleep),
            TargetState::Empty => self.end(now, target, TargetEnd::GaveUp),
            _ if trusts => self.end(now, target, TargetEnd::Ready),
            TargetState::Pausing | TargetState::Filling | TargetState::Verifying => {
                self.judge(now, &report);
                self.pass_grants_on(now, report, &progress);
                self.look_for_slow(now, target);
            }
        }
    }

    /// Takes over what is written; the senders that have brought something.
    fn count(&mut self, target: TargetId, written: &BTreeSet<u32>) -> BTreeSet<SenderId> {
        let Some(of) = self.targets.get_mut(&target) else { return BTreeSet::new() };
        let mut progress = BTreeSet::new();
        for (parcel, sender) in &of.routes {
            let bytes = of.bytes(*parcel);
            match (of.written.contains(parcel), written.contains(parcel)) {
                (false, true) => {
                    self.loads.take(*sender, bytes);
                    progress.insert(*sender);
                }
                (true, false) => self.loads.add(*sender, bytes),
                _ => {}
            }
        }
        of.written = written.clone();
        progress
    }

    /// Parcels differ from the version: others are to write them, once for each time that they were compared.
    fn judge(&mut self, now: Time, report: &PushReport) {
        let Some(of) = self.targets.get_mut(&report.target) else { return };
        if report.differing.is_empty() || of.judged == Some(report.generation) {
            return;
        }
        of.judged = Some(report.generation);
        let spent = |parcel: &u32| of.moves.get(parcel).is_some_and(|n| *n >= self.config.moves);
        if report.differing.keys().any(spent) {
            return self.end(now, report.target, TargetEnd::Differs);
        }
        let mut by: BTreeMap<SenderId, Vec<u32>> = BTreeMap::new();
        report.differing.iter().for_each(|(p, sender)| by.entry(*sender).or_default().push(*p));
        by.into_iter().for_each(|(sender, p)| self.replace(now, report.target, sender, p));
    }

    /// Senders learn of grants that were opened for them.
    fn pass_grants_on(&mut self, now: Time, report: PushReport, progress: &BTreeSet<SenderId>) {
        let Some(of) = self.targets.get_mut(&report.target).filter(|of| of.is_open()) else {
            return;
        };
        let newest = report.grants.iter().map(|grant| grant.number).max().unwrap_or_default();
        let sent = of.sent;
        of.sent = newest.max(sent);
        of.grants = report.grants;
        let granted: BTreeSet<SenderId> = of.grants.iter().map(|grant| grant.sender).collect();
        let owing: BTreeSet<SenderId> = of.unwritten().map(|(_, sender)| sender).collect();
        of.since.retain(|sender, _| owing.contains(sender) && granted.contains(sender));
        for sender in owing.intersection(&granted) {
            let since = of.since.entry(*sender).or_insert(now);
            if progress.contains(sender) {
                *since = now;
            }
        }
        let new = of.grants.iter().filter(|grant| grant.number > sent).cloned();
        self.outputs.extend(new.map(PushOutput::Send));
    }

    /// Whoever has brought nothing for long loses what it has not brought, if another holder lives.
    fn look_for_slow(&mut self, now: Time, target: TargetId) {
        if !self.config.safeguards.on(Safeguard::SlowMoved) {
            return;
        }
        let Some(of) = self.targets.get_mut(&target).filter(|of| of.is_open()) else { return };
        let patience = self.config.patience;
        let slow = of.since.iter().filter(|(_, since)| **since + patience <= now);
        let slow: Vec<SenderId> = slow.map(|(sender, _)| *sender).collect();
        for sender in slow {
            self.yield_parcels(now, target, sender);
        }
    }

    /// A sender does not write. What it says of a grant that is over has no effect.
    pub(super) fn hear_refusal(&mut self, now: Time, refused: &SendRefused) {
        if refused.push != self.config.push {
            return;
        }
        if refused.refusal == SendRefusal::NotHeld {
            return self.lose_sender(now, refused.sender);
        }
        let Some(of) = self.targets.get(&refused.target).filter(|of| of.is_open()) else { return };
        let mut grants = of.grants.iter();
        if grants.any(|g| g.number == refused.grant && g.sender == refused.sender) {
            self.yield_parcels(now, refused.target, refused.sender);
        }
    }
}
