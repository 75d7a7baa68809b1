//! What must hold after every event, as code. A violation is a bug of the server.

use crate::Attempt;
use crate::server::Server;
use crate::server::stores::group::Group;
use crate::server::stores::hosts::Hosts;
use crate::server::stores::model::Model;
use crate::server::stores::timers::Timer;
use crate::server::stores::transaction::Phase;
use crate::server::stores::violation::{Violation, ensure};

impl Server {
    /// Checks all invariants. Costs time in proportion to the state: for tests and simulation.
    pub fn validate(&self) -> Result<(), Violation> {
        self.models.iter().try_for_each(|(name, model)| self.validate_model(name, model))?;
        self.groups.values().try_for_each(|group| self.validate_group(group))?;
        self.validate_edges()?;
        self.models
            .iter()
            .try_for_each(|(name, model)| self.books().validate_vacancy(name, model))?;
        self.models
            .iter()
            .try_for_each(|(name, model)| self.books().validate_offloads(name, model))?;
        self.models
            .iter()
            .try_for_each(|(name, model)| self.books().validate_seeds(name, model))?;
        self.blobs.validate(self.groups.values().flat_map(Group::named_layouts))?;
        self.validate_settled()?;
        self.validate_sessions()?;
        self.validate_timers()
    }

    /// S8, S7: a listed copy is whole and live, and the content of its version is known. D7: where its shards are is known.
    fn validate_model(&self, name: &str, model: &Model) -> Result<(), Violation> {
        let mut hosts = Hosts::default();
        for group in self.groups.values().filter(|group| group.model == name) {
            let of = group.members.values().map(|member| &member.location.host);
            of.for_each(|host| hosts.add(host, group.incarnation));
        }
        ensure(hosts == model.hosts, "D7", || {
            format!("{name} has shards on {hosts:?}, not {:?}", model.hosts)
        })?;
        for (version, holders) in &model.visible {
            ensure(model.known.contains_key(version), "S7", || {
                format!("{name}: version {version} is visible, its content is not known")
            })?;
            ensure(!holders.is_empty(), "S8", || format!("{name}: {version} held by nobody"))?;
            for (replica, incarnation) in holders {
                let group = self.groups.get(incarnation);
                let whole = group.is_some_and(|group| {
                    group.over.is_none()
                        && group.complete()
                        && group.replica == *replica
                        && group.held.as_ref().is_some_and(|held| {
                            held.visible && held.fenced.is_none() && held.version == *version
                        })
                });
                ensure(whole, "S8", || format!("{replica} is listed for {version} but not whole"))?;
            }
        }
        for (replica, incarnation) in &model.replicas {
            let live = self.groups.get(incarnation).is_some_and(|group| group.over.is_none());
            ensure(live, "S8", || format!("name {replica} belongs to a group that is gone"))?;
        }
        for incarnation in model.waiting.values() {
            let waits = self
                .groups
                .get(incarnation)
                .is_some_and(|group| group.active_call().is_some_and(|call| call.place.is_some()));
            ensure(waits, "T5", || format!("group {incarnation} waits without a call"))?;
        }
        Ok(())
    }

    fn validate_group(&self, group: &Group) -> Result<(), Violation> {
        let name = &group.replica;
        if let Some(held) = &group.held {
            let listed = self
                .models
                .of(&group.model)
                .visible
                .get(&held.version)
                .is_some_and(|holders| holders.get(name) == Some(&group.incarnation));
            ensure(listed == held.visible, "S8", || format!("{name}: listed is {listed}"))?;
            ensure(group.registered || group.over.is_some(), "S10", || {
                format!("{name} holds a version in unregistered memory")
            })?;
        }
        let open: Vec<_> =
            group.transactions.values().filter(|t| t.result.is_none()).map(|t| t.seq).collect();
        ensure(open.iter().eq(group.active.iter()), "G1", || {
            format!("{name}: calls without a result {open:?}, active {:?}", group.active)
        })?;
        let mut others = group.transactions.values().filter(|call| group.active != Some(call.seq));
        ensure(others.all(|call| call.decided.is_none()), "G1", || {
            format!("{name}: an answer is kept back for a call that has ended")
        })?;
        ensure(group.over.is_none() || group.active.is_none(), "G1", || {
            format!("{name} is at its end and has a pending call")
        })?;
        self.validate_progress(group)?;
        ensure(group.transactions.len() <= self.config.limits.calls_ahead + 1, "T5", || {
            format!("{name} has {} calls recorded", group.transactions.len())
        })
    }

    /// T5: shards have told their progress only while their group reads or waits for a further source.
    fn validate_progress(&self, group: &Group) -> Result<(), Violation> {
        let Some(transfer) = group.transfer() else { return Ok(()) };
        let (name, phase) = (&group.replica, transfer.phase);
        let reads = transfer.attempt > Attempt(0)
            && matches!(phase, Phase::Waiting | Phase::Draining | Phase::Reading);
        ensure(reads || transfer.progress.is_empty(), "T5", || {
            format!("{name} is {phase:?} and has told progress")
        })?;
        for (shard, progress) in &transfer.progress {
            ensure(*shard < group.num_shards && progress.arrived <= progress.total, "T5", || {
                format!("shard {shard} of {name} has told of {progress:?}")
            })?;
        }
        Ok(())
    }

    /// T5: every timer has a subject that exists, and is set once, so clients can't make the queue
    /// grow.
    fn validate_timers(&self) -> Result<(), Violation> {
        let mut seen = std::collections::BTreeSet::new();
        for timer in self.timers.iter() {
            let wanted = match timer {
                Timer::Unheard(session) => {
                    self.sessions.contains(session) && self.connections.stream(*session).is_none()
                }
                Timer::Lease(session) => self.sessions.contains(session),
                Timer::Drain(group)
                | Timer::Retry(group)
                | Timer::Hold(group)
                | Timer::Recovery(group) => self.groups.contains(group),
                Timer::Proof(nonce) => self.challenges.contains(nonce),
                Timer::Call(group, seq) => self.groups.is_pending(*group, *seq),
                Timer::Blob(digest) => self.blobs.contains(digest),
                Timer::Window => true,
            };
            ensure(wanted, "T5", || format!("waits for {timer:?}, which is gone"))?;
            ensure(seen.insert(timer), "T5", || format!("waits for {timer:?} twice"))?;
        }
        Ok(())
    }

    fn validate_sessions(&self) -> Result<(), Violation> {
        for (session, entry) in self.sessions.iter() {
            let member = self.groups.get(&entry.group).and_then(|g| g.members.get(&entry.shard));
            ensure(member.is_some_and(|m| m.session == *session), "T5", || {
                format!("{session:?} is no member of group {}", entry.group)
            })?;
        }
        let members: usize = self.groups.values().map(|group| group.members.len()).sum();
        ensure(members == self.sessions.len(), "T5", || {
            format!("{members} members, {} sessions", self.sessions.len())
        })?;
        self.connections.validate(|session| self.sessions.contains(session))
    }
}
