//! `wait`: checks its condition whenever something has changed, once for all shards (G3).

use crate::message::{Call, Role};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::VersionHandler;
use crate::server::stores::group::Group;
use crate::server::stores::model::{Model, Resolution};
use crate::server::stores::transaction::Transaction;
use crate::{Condition, Freshness, Incarnation, Quorum, Safeguard, Version};

/// How many lagging rollouts an error names.
const NAMED: usize = 4;

impl VersionHandler<'_> {
    /// Answers a `wait` if its condition holds now.
    pub(in crate::server) fn advance_wait(&mut self, incarnation: Incarnation, until: Condition) {
        let waiter = self.books().group(incarnation);
        let model = waiter.model;
        match until {
            Condition::Changed { after } if model.revision > after => {}
            Condition::Available(selector) => match model.resolve(selector) {
                Resolution::Available(_) => {}
                Resolution::NotYet => return,
                Resolution::Gone => {
                    let error = waiter.unavailable(selector);
                    return self.calls().finish(incarnation, Err(error));
                }
            },
            Condition::Held(held) if waiter.is_held(held) => {}
            Condition::Changed { .. } | Condition::Held(_) => return,
        }
        self.finish_listed(incarnation);
    }
}

impl Group {
    /// The condition that a group waits for, if its call is a `wait` that is not decided.
    pub(in crate::server) fn waits_until(&self) -> Option<Condition> {
        match *self.active_call()? {
            Transaction { call: Call::Wait { until }, decided: None, .. } => Some(until),
            _ => None,
        }
    }
}

impl<'a> GroupCtx<'a> {
    /// What a `wait` was waiting for when its deadline passed.
    pub(in crate::server) fn wait_waits_for(&self, until: Condition) -> String {
        let Condition::Held(held) = until else { return until.to_string() };
        let model = self.model;
        let Some(latest) = model.latest() else {
            return format!("{held}: nothing is available{}", left(model, None));
        };
        let oldest = held.oldest(latest);
        let named: Vec<String> = self.lagging(oldest).take(NAMED).map(name_lagging).collect();
        let named = match (named.is_empty(), self.rollouts().next()) {
            (false, _) => named.join(", "),
            (true, None) => "no rollout is registered".to_owned(),
            (true, Some(_)) => "no other rollout is registered".to_owned(),
        };
        format!("{held} (latest is {latest}): {named}{}", left(model, Some(oldest)))
    }

    /// Rollouts that hold nothing as new as a version.
    pub(in crate::server) fn lagging(self, oldest: Version) -> impl Iterator<Item = &'a Group> {
        self.rollouts().filter(move |rollout| listed(rollout) < Some(oldest))
    }

    fn is_held(&self, held: Freshness) -> bool {
        // Rollouts that lag behind may still come over from an earlier term.
        let unknown = self.model.recovers && held.by == Quorum::All;
        let blind = !self.config.safeguards.on(Safeguard::EmptyReplicasWaitedFor);
        let rollouts = self.rollouts().map(listed).filter(|held| held.is_some() || !blind);
        !unknown && held.is_met(self.model.latest(), rollouts)
    }

    /// The rollouts that count: rollouts with registered memory.
    fn rollouts(self) -> impl Iterator<Item = &'a Group> {
        let replicas = self.model.replicas.values();
        let groups = replicas.map(move |incarnation| self.groups.of(incarnation));
        groups.filter(|group| group.role == Role::Rollout && group.registered)
    }
}

/// Names rollouts that held what the call waits for, and have left: they don't count any more.
fn left(model: &Model, oldest: Option<Version>) -> String {
    let late = model.departed.iter().filter(|(_, held)| Some(*held) >= oldest);
    late.map(|(replica, held)| format!(", {replica} held {held} and has left")).collect()
}

/// The version with which a group is listed.
fn listed(group: &Group) -> Option<Version> {
    group.held.as_ref().filter(|held| held.visible).map(|held| held.version)
}

fn name_lagging(group: &Group) -> String {
    match listed(group) {
        Some(version) => format!("{} holds {version}", group.replica),
        None => format!("{} holds nothing", group.replica),
    }
}
