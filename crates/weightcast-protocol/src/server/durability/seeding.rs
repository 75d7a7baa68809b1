//! Offload seeding (§4.3.2 of the paper; O1, O2): an update that would have to read from another
//! datacentre is answered at once, and the version crosses in the background.
//!
//! The group that called `update` is asked to open a seed replica: memory of its layout, and a session for each
//! shard. The seed replicates the version as any reader would (D1 to D6 hold for it). Once the seed holds the
//! version it is a source of this datacentre, and the next update reads from it. One seed ends before the next is
//! asked for, so that new versions don't starve a slow link; and the seed's version is read even if a newer one is
//! far away by then.

use crate::message::{Open, Role, ServerMessage};
use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::{Books, DurabilityHandler};
use crate::server::stores::group::Group;
use crate::server::stores::model::{Model, Resolution};
use crate::server::stores::seeding::Asked;
use crate::server::stores::sessions::MemberId;
use crate::{CallError, Incarnation, Safeguard, Selector, Time, Version};

impl Group {
    pub(in crate::server) fn seeds(&self) -> Option<Version> {
        match self.role {
            Role::Seed(version) => Some(version),
            Role::Trainer | Role::Rollout | Role::Offload(_) => None,
        }
    }

    /// Whether this group was asked for the seed.
    fn was_asked(&self, asked: &Asked) -> bool {
        self.seeds().is_none() && self.replica == asked.owner
    }
}

impl<'a> GroupCtx<'a> {
    /// The request for a seed in the group's datacentre, while the seed has not come.
    pub(in crate::server) fn asked_here(&self) -> Option<&'a Asked> {
        self.model.seeding.asked.get(self.group.datacentre())
    }

    /// The version that an update takes instead of `version`: a group with offload seeding prefers
    /// a version that a group of its datacentre holds already, if that version is newer than its
    /// own.
    pub(in crate::server) fn nearby_instead(
        &self,
        selector: Selector,
        version: Version,
    ) -> Version {
        let Some(held) = self.group.held.as_ref().filter(|_| self.group.offload_seeding) else {
            return version;
        };
        if self.is_held_here(version) {
            return version;
        }
        let known = self.model.visible.keys().copied();
        let near: Vec<Version> = known.filter(|known| self.is_held_here(*known)).collect();
        selector.pick(&near).filter(|near| *near > held.version).unwrap_or(version)
    }

    /// Whether a group in this group's datacentre has a listed copy of a version.
    pub(super) fn is_held_here(&self, version: Version) -> bool {
        self.is_held_in(self.model, self.group.datacentre(), version)
    }
}

impl TransferCtx<'_> {
    /// Whether the reader can get a version only from another datacentre.
    fn must_cross(&self, version: Version) -> bool {
        let known = self.holders(version).next().is_some()
            || self.coming(version, |_| true).next().is_some();
        known && self.may_cross(version)
    }
}

impl Books<'_> {
    /// Whether a group in a datacentre has a listed copy of a version.
    pub(super) fn is_held_in(&self, model: &Model, here: &str, version: Version) -> bool {
        model.holders(version).any(|holder| self.groups.of(&holder).datacentre() == here)
    }

    /// A seed replica may be opened only while it is wanted.
    pub(in crate::server) fn check_seed(&self, open: &Open) -> Result<(), CallError> {
        let Role::Seed(version) = open.role else { return Ok(()) };
        let model = self.models.get(&open.model);
        let asked = model.and_then(|m| m.seeding.asked.get(&open.location.datacentre));
        let detail = format!(
            "a seed of version {version} by {} is not wanted any more; let go of its memory",
            open.replica
        );
        let wanted = asked.is_some_and(|asked| asked.replica() == open.replica);
        if wanted { Ok(()) } else { Err(CallError::Misuse { detail }) }
    }
}

impl DurabilityHandler<'_> {
    /// Whether the group keeps its copy and leaves the version to a seed, which is on its way to
    /// the datacentre or is asked for now. If so, returns the seeds that have to go first.
    pub(in crate::server) fn leave_to_seed(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        selector: Selector,
        version: Version,
    ) -> Option<Vec<Incarnation>> {
        self.give_up_overdue_seed(now, incarnation);
        let reader = self.books().transfer(incarnation);
        let group = reader.group;
        if reader.waits_for_seed(version) {
            self.counters.skips += 1;
            return Some(Vec::new());
        }
        let wants = group.offload_seeding && !group.seed_failed && group.held.is_some();
        if !wants || !self.config.safeguards.on(Safeguard::SeedFirst) || !reader.must_cross(version)
        {
            return None;
        }
        // Ask for a seed only if the selector still means this version. It may mean another one,
        // because this version was near when it was chosen, or only other groups are getting it.
        let newest = reader.model.resolve(selector);
        match newest == Resolution::Available(version) {
            true => Some(self.begin_seed(now, incarnation, version)),
            false => Some(Vec::new()),
        }
    }

    /// Asks the group for a seed, unless its datacentre has other seeds. These are returned, and go
    /// first.
    fn begin_seed(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        version: Version,
    ) -> Vec<Incarnation> {
        let asker = self.books().group(incarnation);
        let one = self.config.safeguards.on(Safeguard::OneSeed);
        if asker.model.recovers || (asker.asked_here().is_some() && one) {
            return Vec::new(); // a seed may yet come over, or is on its way for another group
        }
        let others: Vec<Incarnation> = asker.seeds_near().collect();
        if !others.is_empty() && one {
            // Their memory is free by the next update, or the one after it.
            return others;
        }
        let group = self.groups.of(&incarnation);
        let owner = group.replica.clone();
        let members = group.member_ids();
        let until = now + self.config.seed_deadline;
        let asked =
            Asked { ask: self.numbers.next_ask(self.terms.own.term), version, owner, until };
        self.counters.seeds_asked += 1;
        let model = self.models.of_mut(&group.model);
        model.seeding.asked.insert(group.datacentre().to_owned(), asked);
        members.into_iter().for_each(|member| self.remind_seed(member));
        Vec::new()
    }

    /// Repeats a request for a seed that a member may have missed.
    pub(in crate::server) fn remind_seed(&mut self, to: MemberId) {
        let asker = self.books().group(to.group);
        let asked = asker.asked_here().filter(|asked| asked.ask > 0);
        if let Some(asked) = asked.filter(|asked| asker.group.was_asked(asked)) {
            let (version, ask) = (asked.version, asked.ask);
            let deadline = self.config.seed_deadline;
            self.connections.send(to.session, ServerMessage::Seed { version, ask, deadline });
        }
    }

    /// A shard has no memory for a seed, or its seed has failed.
    pub(in crate::server) fn seed_failed(&mut self, from: MemberId, ask: u64) {
        let asker = self.books().group(from.group);
        let asked = asker.asked_here().filter(|asked| asked.ask == ask);
        if asked.is_some_and(|asked| asker.group.was_asked(asked)) {
            self.fail_seed(from.group);
        }
    }

    /// Fails a seed that takes too long, so that it does not keep the version from its datacentre
    /// (F29, L4).
    pub(super) fn give_up_overdue_seed(&mut self, now: Time, incarnation: Incarnation) {
        let asked = self.books().group(incarnation).asked_here();
        if asked.is_some_and(|asked| asked.until <= now) {
            self.fail_seed(incarnation);
        }
    }

    /// The seed of this group's datacentre has failed. The group that was asked for it crosses by
    /// itself with its next update.
    pub(super) fn fail_seed(&mut self, incarnation: Incarnation) {
        let group = self.groups.of(&incarnation);
        let name = group.model.clone();
        let model = self.models.of_mut(&name);
        let Some(asked) = model.seeding.asked.remove(group.datacentre()) else { return };
        self.counters.seeds_failed += 1;
        if let Some(owner) = model.replicas.get(&asked.owner) {
            self.groups.of_mut(owner).seed_failed = true;
        }
        self.agenda.note_change(&name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::server::Server;
    use crate::server::ServerConfig;
    use crate::server::stores::seeding::seed_name;
    use crate::{Epoch, Term};

    #[test]
    fn what_is_asked_for_has_another_name_each_time_and_in_each_term() {
        // Terms of several lives; in the upper half of a term there may be little or much.
        let steps = [1 << 26, 1 << 32, 7 << 32, 1 << 40, 1 << 60];
        let of_lives = steps.into_iter().zip(1..).map(|(step, life)| step + (1023 << 16) + life);
        let mut asks = BTreeSet::new();
        for term in of_lives {
            asked_in(term, &mut asks);
        }
        // In the lower half may be nothing.
        for term in steps {
            asked_in(term, &mut BTreeSet::new());
        }
    }

    fn asked_in(term: u64, asks: &mut BTreeSet<u64>) {
        let mut server = Server::new(ServerConfig::default());
        server.terms.own.term = Term(term);
        for _ in 0..100 {
            let ask = server.numbers.next_ask(server.terms.own.term);
            assert!(ask > 0, "that is what comes over from an earlier term");
            assert!(asks.insert(ask), "{ask} was given twice");
        }
    }

    fn version(number: u64) -> Version {
        Version { epoch: Epoch(0), number }
    }

    /// A group of two shards that holds version 1, in a datacentre without a name.
    fn owner() -> (Server, Incarnation) {
        let mut server = crate::server::props::server();
        let owner = server.prop("owner", 2);
        server.holds(owner, version(1));
        for shard in 0..2 {
            let session = server.session(owner, shard);
            let stream = crate::ConnectionId(shard.into());
            server.connections.bind(session, stream);
        }
        (server, owner)
    }

    /// What its shards are told.
    fn told(server: &mut Server) -> Vec<(Version, u64, crate::Span)> {
        let outputs = server.connections.take().into_iter();
        let seeds = outputs.filter_map(|output| match output {
            crate::server::ServerOutput::Send {
                message: ServerMessage::Seed { version, ask, deadline },
                ..
            } => Some((version, ask, deadline)),
            _ => None,
        });
        seeds.collect()
    }

    #[test]
    fn a_seed_is_asked_for_once_with_its_whole_time() {
        for deadline in [7, 600] {
            let (mut server, owner) = owner();
            server.config.seed_deadline = crate::Span(deadline);
            server.durability().begin_seed(Time(50), owner, version(2));
            let asked = server.models["policy"].seeding.asked[""].clone();
            assert_eq!((asked.version, asked.until), (version(2), Time(50 + deadline)));
            assert_eq!((asked.owner.as_str(), server.counters.seeds_asked), ("owner", 1));
            let expected = (version(2), asked.ask, crate::Span(deadline));
            assert_eq!(told(&mut server), [expected; 2], "each shard");
            // Nothing else is, until that has come or failed, and nothing is told to others.
            let other = server.prop("other", 1);
            server.durability().begin_seed(Time(60), other, version(3));
            assert_eq!(server.models["policy"].seeding.asked.len(), 1);
            assert_eq!((server.counters.seeds_asked, told(&mut server)), (1, vec![]));
            for (member, tells) in
                [(server.member(owner, 1), true), (server.member(other, 0), false)]
            {
                server.connections.bind(member.session, crate::ConnectionId(9));
                server.durability().remind_seed(member);
                assert_eq!(
                    told(&mut server),
                    tells.then_some(expected).into_iter().collect::<Vec<_>>()
                );
            }
            // What came over has an owner who knows of it.
            let model = server.models.get_mut("policy").expect("a prop");
            model.seeding.asked.get_mut("").expect("asked").ask = 0;
            let member = server.member(owner, 1);
            server.durability().remind_seed(member);
            assert_eq!(told(&mut server), []);
        }
        let (mut server, owner) = owner();
        server.models.get_mut("policy").expect("a prop").recovers = true;
        server.durability().begin_seed(Time(50), owner, version(2));
        assert_eq!(
            (told(&mut server), server.counters.seeds_asked),
            (vec![], 0),
            "one may come over"
        );
    }

    #[test]
    fn a_seed_has_failed_by_the_word_of_whoever_was_asked_for_it() {
        for (by_owner, right_ask) in [(true, true), (true, false), (false, true), (false, false)] {
            let (mut server, owner) = owner();
            let other = server.prop("other", 1);
            server.durability().begin_seed(Time(50), owner, version(2));
            let ask = server.models["policy"].seeding.asked[""].ask;
            let member = server.member(if by_owner { owner } else { other }, 0);
            server.durability().seed_failed(member, if right_ask { ask } else { ask + 1 });
            let fails = by_owner && right_ask;
            assert_eq!(server.models["policy"].seeding.asked.is_empty(), fails);
            assert_eq!(server.counters.seeds_failed, u64::from(fails));
            assert_eq!(server.groups[&owner].seed_failed, fails);
        }
    }

    #[test]
    fn the_seed_that_was_asked_for_may_be_opened_and_no_other() {
        let (mut server, owner) = owner();
        server.durability().begin_seed(Time(50), owner, version(2));
        for (name, of, at, wanted) in [
            (seed_name("owner", version(2)), 2, "", true),
            (seed_name("owner", version(3)), 3, "", false),
            (seed_name("other", version(2)), 2, "", false),
            (seed_name("owner", version(2)), 2, "there", false),
        ] {
            let mut open = crate::server::props::opening("policy", &name, 2);
            open.role = Role::Seed(version(of));
            open.location.datacentre = at.to_owned();
            assert_eq!(server.books().check_seed(&open).is_ok(), wanted, "{name} {at}");
            open.role = Role::Rollout;
            assert_eq!(server.books().check_seed(&open), Ok(()), "whoever is no seed");
        }
    }

    #[test]
    fn a_seed_is_named_after_who_was_asked_and_what_for() {
        let version = Version { epoch: Epoch(3), number: 14 };
        let asked = Asked { ask: 1, version, owner: "r/1".into(), until: Time(0) };
        assert_eq!(asked.replica(), "r/1~seed-3.14");
        assert_eq!(crate::server::durability::offload::owner_of(&asked.replica()), "r/1");
        assert_eq!(crate::server::durability::offload::owner_of("r/1"), "r/1");
    }
}
