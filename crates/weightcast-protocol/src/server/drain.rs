//! Taking copies out of sight, and readers off them: drain before mutate, bounded (S8, S9, L3).

use super::Server;
use super::source_loss::Loss;
use super::timers::Timer;
use crate::{Incarnation, Time};

impl Server {
    /// The group's copy is listed and read from now on.
    pub(super) fn show_copy(&mut self, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let held = group.held.as_mut().expect("checked by the caller");
        held.visible = true;
        held.offload_failed = None;
        let model = self.models.get_mut(&group.model).expect("groups have a model");
        model.show(held.version, &group.replica, incarnation);
        self.changed.insert(group.model.clone());
    }

    /// The group's copy is not listed and takes no new readers from now on.
    pub(super) fn hide_copy(&mut self, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let Some(held) = group.held.as_mut().filter(|held| held.visible) else { return };
        held.visible = false;
        let model = self.models.get_mut(&group.model).expect("groups have a model");
        let revision = model.revision;
        model.hide(held.version, &group.replica);
        if self.config.mutants.silent_retraction {
            (model.revision, model.listed) = (revision, None);
        }
        self.changed.insert(group.model.clone());
    }

    /// Readers of the group have until then to finish.
    pub(super) fn drain_until(&mut self, incarnation: Incarnation, until: Time) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let until = group.drain_until.map_or(until, |earlier| earlier.min(until));
        group.drain_until = Some(until);
        self.timers.set(until, Timer::Drain(incarnation));
    }

    /// Whether nobody reads from the group.
    pub(super) fn drained(&self, incarnation: Incarnation) -> bool {
        let mutant = self.config.mutants.no_drain;
        let mut readers = self.edges.readers_of(incarnation);
        readers.all(|reader| mutant && self.groups[&reader].held.is_none())
    }

    /// The drain is over, one way or the other.
    pub(super) fn end_drain(&mut self, incarnation: Incarnation) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        if group.drain_until.take().is_some() {
            self.timers.cancel(Timer::Drain(incarnation));
        }
    }

    /// The readers have had their time. Safe, because a source fences before it changes (S3).
    pub(super) fn drain_timer(&mut self, now: Time, incarnation: Incarnation) {
        let Some(group) = self.groups.get_mut(&incarnation) else { return };
        if group.drain_until.is_none_or(|until| until > now) || self.config.mutants.endless_drain {
            return;
        }
        group.drain_until = None;
        let reason = format!("replica {} gave its copy up before it was read", group.replica);
        self.counters.drains_cut += self.edges.load(incarnation) as u64;
        self.cut_readers(incarnation, &reason);
        self.agenda.insert(incarnation);
    }

    /// Takes every reader off a source; each goes on at another, or fails.
    pub(super) fn cut_readers(&mut self, source: Incarnation, reason: &str) {
        self.take_readers_off(source, reason, Loss::default());
    }

    /// The same where the source was proved bad: each begins anew.
    pub(super) fn spoil_readers(&mut self, source: Incarnation, reason: &str) {
        self.take_readers_off(source, reason, Loss { suspect: true, ..Loss::default() });
    }

    fn take_readers_off(&mut self, source: Incarnation, reason: &str, loss: Loss) {
        let readers: Vec<Incarnation> = self.edges.readers_of(source).collect();
        for reader in readers {
            if self.config.mutants.no_commit_fence && self.groups[&reader].held.is_none() {
                // The mutant lets a read go on as if nothing had happened.
                let model = self.groups[&reader].model.clone();
                self.edges.remove(&model, reader);
            } else {
                let from = self.edges.sources_of(reader);
                let stripe = from.iter().position(|from| *from == source).unwrap_or(0);
                if stripe > 0 && self.config.mutants.first_stripe_only {
                    self.edges.keep_first(reader); // as if it were none of its sources
                } else {
                    self.lose_source(reader, reason, Loss { stripe, ..loss });
                }
            }
        }
    }
}
