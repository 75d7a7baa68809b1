//! `open`: makes a session a member of a group, or resumes a known session.

use crate::limits::{Limits, check_label, check_name};
use crate::message::{EpochPolicy, Open, Role, ServerMessage};
use crate::server::durability::offload::owner_name;
use crate::server::rooms::MembershipHandler;
use crate::server::stores::group::{Group, Member};
use crate::server::stores::model::Model;
use crate::server::stores::sessions::SessionEntry;
use crate::server::stores::timers::Timer;
use crate::{CallError, ConnectionId, Epoch, Incarnation, OpSeq, PROTOCOL, Time};

/// Why a session could not be opened.
struct OpenFailure {
    error: CallError,
    /// Whether the same `open` may succeed later.
    retry: bool,
}

impl From<CallError> for OpenFailure {
    fn from(error: CallError) -> Self {
        Self { error, retry: false }
    }
}

fn misuse(detail: String) -> CallError {
    CallError::Misuse { detail }
}

impl MembershipHandler<'_> {
    pub(in crate::server) fn open(&mut self, now: Time, from: ConnectionId, open: Open) {
        let session = open.session;
        // Check the form before `takes`: an `open` that every server would refuse must not activate
        // this one.
        let form = self.check_form(&open);
        if form.is_ok() && !self.takes(now, &open) {
            let message = ServerMessage::Superseded;
            return self.connections.send_on(from, message);
        }
        let opened = if let Err(error) = form {
            Err(error.into())
        } else if self.connections.session(from).is_some_and(|other| other != session) {
            Err(misuse("this stream belongs to another session; open a new stream".into()).into())
        } else if self.sessions.contains(&session) {
            self.resume(&open)
        } else {
            self.join(now, &open)
        };
        match opened {
            Ok(()) => self.opened(now, from, &open),
            Err(OpenFailure { error, retry }) => {
                self.counters.refusals += 1;
                let message = ServerMessage::Refused { error, retry };
                self.connections.send_on(from, message);
            }
        }
    }

    fn opened(&mut self, now: Time, from: ConnectionId, open: &Open) {
        let session = open.session;
        self.connections.bind(session, from);
        self.renew(now, session);
        self.hear(session);
        let member = self.sessions.member(session);
        let message =
            ServerMessage::Opened { ticket: self.calls().ticket(member), lease: self.config.lease };
        // Send `Opened` first: a session ignores all other messages before it.
        self.connections.send(session, message);
        self.durability().remind_offload(member);
        self.durability().remind_seed(member);
        self.durability().remind_challenges(member);
    }

    /// A known session on a new stream. Its state is kept.
    fn resume(&mut self, open: &Open) -> Result<(), OpenFailure> {
        let entry = self.sessions.of(&open.session);
        let group = self.groups.of(&entry.group);
        if (&group.model, &group.replica, entry.shard, group.num_shards)
            != (&open.model, &open.replica, open.shard, open.num_shards)
        {
            let detail = format!(
                "this session is shard {} of {} of replica {}; a session can't become another \
                 shard, open a new one",
                entry.shard, group.num_shards, group.replica
            );
            return Err(misuse(detail).into());
        }
        match &group.over {
            Some(over) if !over.closing => Err(over.error.clone().into()),
            _ => Ok(()),
        }
    }

    /// A new session: finds its group, or founds it.
    fn join(&mut self, now: Time, open: &Open) -> Result<(), OpenFailure> {
        self.check_open(open)?;
        if let Some(ticket) = open.past() {
            self.rejoin(now, open, ticket)?;
            self.enter(now, open, ticket.incarnation);
            return Ok(());
        }
        self.check_settled(open)?;
        let live = self.models.get(&open.model).and_then(|m| m.replicas.get(&open.replica));
        let incarnation = match live.copied() {
            Some(incarnation) => {
                check_fits(self.groups.of(&incarnation), open)?;
                incarnation
            }
            None => {
                let incarnation = self.numbers.last_incarnation.next();
                self.found_group(open, incarnation)?;
                self.numbers.last_incarnation = incarnation;
                incarnation
            }
        };
        self.enter(now, open, incarnation);
        Ok(())
    }

    /// Makes the session a member of a group.
    fn enter(&mut self, now: Time, open: &Open, incarnation: Incarnation) {
        let member = Member {
            session: open.session,
            location: open.location.clone(),
            data_address: open.data_address.clone(),
            registration: None,
            last_seq: OpSeq(0),
            closing: false,
            announced: None,
            // Versions of another line are neither older nor newer than versions here, so that
            // ticket proves nothing.
            proved: open.past().filter(|past| self.is_ours(past)).and_then(|past| past.held),
        };
        let group = self.groups.of_mut(&incarnation);
        group.members.insert(open.shard, member);
        self.models.of_mut(&group.model).hosts.add(&open.location.host, incarnation);
        let entry = SessionEntry::new(incarnation, open.shard);
        self.timers.set(now + self.config.lease_with_margin(), Timer::Lease(open.session));
        self.sessions.insert(open.session, entry);
    }

    /// Refuses for now while the books are incomplete. A trainer could start a run that has begun
    /// already, and a group that comes over keeps the places of its shards.
    fn check_settled(&self, open: &Open) -> Result<(), OpenFailure> {
        let live = self.models.get(&open.model).and_then(|m| m.replicas.get(&open.replica));
        let recovering = live.is_some_and(|group| self.groups.of(group).recovering);
        if recovering || (open.role == Role::Trainer && self.books().recovers()) {
            let detail = format!(
                "replica {} has to wait until the clients of the last reference server have come \
                 over to this one",
                open.replica
            );
            return Err(OpenFailure { error: misuse(detail), retry: true });
        }
        Ok(())
    }

    /// What is wrong with an `Open`, regardless of the books.
    fn check_form(&self, open: &Open) -> Result<(), CallError> {
        check_peer(open)?;
        self.check_ticket(open)?;
        check_name("model", &open.model)?;
        check_name("replica", owner_name(open))?;
        check_label("datacentre", &open.location.datacentre)?;
        check_label("host", &open.location.host)?;
        check_label("data address", &open.data_address)?;
        let limits = &self.config.limits;
        Limits::check("number of shards", open.num_shards.into(), limits.shards_per_group.into())?;
        if open.shard >= open.num_shards {
            return Err(misuse(format!(
                "shard {} of replica {} does not exist: it has {} shards, numbered from 0",
                open.shard, open.replica, open.num_shards
            )));
        }
        Ok(())
    }

    fn check_open(&self, open: &Open) -> Result<(), CallError> {
        if open.past().is_some_and(|ticket| ticket.proof.term == self.terms.own.term) {
            // The session was open here in this term, so it was evicted or closed.
            let reason = format!("the lease of shard {} ran out, or it was closed", open.shard);
            return Err(CallError::GroupBroken { replica: open.replica.clone(), reason });
        }
        if !open.rejoins {
            self.books().check_offload(open)?;
            self.books().check_seed(open)?;
        }
        let sessions = self.sessions.len() as u64 + 1;
        Limits::check("number of sessions open", sessions, self.config.limits.sessions as u64)
    }

    pub(in crate::server) fn found_group(
        &mut self,
        open: &Open,
        incarnation: Incarnation,
    ) -> Result<(), CallError> {
        if self.groups.contains(&incarnation) {
            let detail =
                format!("group {incarnation} is another one; open replica {} anew", open.replica);
            return Err(misuse(detail));
        }
        if !self.models.contains(&open.model) {
            let models = self.models.len() as u64 + 1;
            Limits::check("number of models", models, self.config.limits.models as u64)?;
            let new = self.new_model();
            self.models.insert(open.model.clone(), new);
        }
        let first = self.first_run();
        // A run of another line is none here.
        let past = open.past().filter(|ticket| self.is_ours(ticket));
        let model = self.models.of_mut(&open.model);
        model.groups += 1;
        if begins_run(open, model) {
            // Not the next number alone: what is unknown here may have counted on from this run.
            model.epoch = model.epoch.next().max(first);
            model.retention.versions = 0;
        }
        match open.role {
            Role::Trainer => {
                model.retention.versions = model.retention.versions.max(open.retain);
            }
            Role::Offload(_) => {
                model.retention.replicas.insert(incarnation);
            }
            Role::Seed(_) => {
                model.seeding.replicas.insert(incarnation);
            }
            Role::Rollout => {}
        }
        model.replicas.insert(open.replica.clone(), incarnation);
        let epoch = past.map_or(model.epoch, |ticket| ticket.epoch);
        self.groups.insert(incarnation, Group::founded(incarnation, open, epoch));
        Ok(())
    }
}

/// Whether a run begins with this trainer. One that asks for the current run begins it where none is
/// known.
fn begins_run(open: &Open, model: &Model) -> bool {
    let starts = open.epoch == EpochPolicy::New && model.run_has_begun();
    open.role == Role::Trainer && !open.rejoins && (starts || model.epoch == Epoch(0))
}

/// Whether client and server speak the same version of the protocol (F35).
fn check_peer(open: &Open) -> Result<(), CallError> {
    if open.protocol != PROTOCOL {
        return Err(misuse(format!(
            "the client speaks protocol {}, the server {PROTOCOL}; install the same version of \
             weightcast on both",
            open.protocol
        )));
    }
    Ok(())
}

/// Whether a new session fits into a group that others have founded.
fn check_fits(group: &Group, open: &Open) -> Result<(), OpenFailure> {
    if group.num_shards != open.num_shards {
        return Err(OpenFailure::from(misuse(format!(
            "shard {} says that replica {} has {} shards, shard {} has said {}; give the same \
             number on all shards",
            open.shard,
            open.replica,
            open.num_shards,
            group.members.keys().next().copied().unwrap_or_default(),
            group.num_shards
        ))));
    }
    if group.role != open.role {
        return Err(OpenFailure::from(misuse(format!(
            "shard {} opens replica {} as {:?}, the other shards did as {:?}; give the same role",
            open.shard, open.replica, open.role, group.role
        ))));
    }
    if group.offload_seeding != open.offload_seeding {
        return Err(OpenFailure::from(misuse(format!(
            "shard {} opens replica {} with offload_seeding={}, the other shards did not; give the \
             same on all shards",
            open.shard, open.replica, open.offload_seeding
        ))));
    }
    if group.released {
        let detail = format!("replica {} was told to go; wait until it has", open.replica);
        return Err(OpenFailure { error: misuse(detail), retry: true });
    }
    if group.members.contains_key(&open.shard) {
        let error = misuse(format!(
            "shard {} of replica {} is open already, in another process or by another handle of this \
             one; close that, name another replica, or wait until its lease runs out",
            open.shard, open.replica
        ));
        return Err(OpenFailure { error, retry: true });
    }
    Ok(())
}
