//! How a push ends, at one target and at all.

use crate::Time;
use crate::push::driver::{PushDriver, PushOutput};
use crate::push::names::TargetId;
use crate::push::order::PushCommand;
use crate::push::outcome::{PushResult, TargetEnd, TargetOutcome};

impl PushDriver {
    /// The push is over at this target. A target that may still have grants open is told so, once: its lease does the rest.
    pub(super) fn end(&mut self, now: Time, target: TargetId, end: TargetEnd) {
        let Some(of) = self.targets.get_mut(&target).filter(|of| of.is_open()) else { return };
        let (missing, unheld) = (of.missing(), of.unheld(&self.lost));
        let owed = of.unwritten().map(|(parcel, sender)| (sender, of.bytes(parcel)));
        owed.for_each(|(sender, bytes)| self.loads.take(sender, bytes));
        of.end =
            Some(TargetOutcome { end, missing, unheld, moved: of.moved, took: now - of.joined });
        of.revision += 1;
        let revision = of.revision;
        if !matches!(end, TargetEnd::Ready | TargetEnd::Lost | TargetEnd::Superseded) {
            self.order(target, revision, PushCommand::Dismiss);
        }
    }

    /// The caller does not want the push any more.
    pub(super) fn cancel(&mut self, now: Time) {
        let open: Vec<TargetId> = self.open().collect();
        open.into_iter().for_each(|target| self.end(now, target, TargetEnd::Cancelled));
        self.conclude();
    }

    /// The push is over once it is over everywhere.
    pub(super) fn finish(&mut self) {
        if !self.targets.is_empty() && self.open().next().is_none() {
            self.conclude();
        }
    }

    fn conclude(&mut self) {
        if std::mem::replace(&mut self.over, true) {
            return;
        }
        let ended = self.targets.iter().map(|(target, of)| (*target, of.end.clone()));
        let targets = ended.filter_map(|(target, end)| Some((target, end?))).collect();
        let (push, version) = (self.config.push, self.config.version);
        self.outputs.push_back(PushOutput::Ended(PushResult { push, version, targets }));
    }
}
