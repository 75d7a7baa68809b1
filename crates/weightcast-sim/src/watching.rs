//! Who watches the world: checkers, coverage points, counts, the story.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::{CallError, Term};

use crate::checkers::Fact;
use crate::hosts::Host;
use crate::process::Process;
use crate::story::{self, StoryEvent};
use crate::world::World;

impl World {
    /// Shows a fact to the checkers, the coverage points, and whoever reads the story.
    pub(crate) fn observe(&mut self, fact: Fact<'_>) {
        if self.story.is_some()
            && let Some((process, what)) = story::tell(&fact)
        {
            let place = |p: &Process| format!("{}/{}", p.replica, p.shard);
            let who = process.map_or("world".to_owned(), |index| place(&self.processes[index]));
            self.write_down(who, what, None);
        }
        self.sights.observe(&fact, &mut self.report.points);
        self.failover_sights.observe(&fact, &mut self.report.points);
        self.seed_sights.observe(&fact, &mut self.report.points);
        for (invariant, detail) in self.checkers.observe(self.now, &fact) {
            self.violated(invariant, detail);
        }
    }

    pub(crate) fn violated(&mut self, invariant: &str, detail: String) {
        self.write_down("world".to_owned(), detail.clone(), Some(invariant.to_owned()));
        self.report.violated(self.now, invariant, detail);
    }

    fn write_down(&mut self, who: String, what: String, invariant: Option<String>) {
        let (step, at) = (self.report.events, self.now);
        if let Some(story) = &mut self.story {
            story.push(StoryEvent { step, at, who, what, invariant });
        }
    }

    pub(crate) fn count(&mut self, call: Option<&Call>, result: &Result<Answer, CallError>) {
        let first_word = |text: String| {
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
        };
        let call = call.map(|call| first_word(format!("{call:?}"))).unwrap_or_default();
        let end = match result {
            Ok(answer) => first_word(format!("{answer:?}")),
            Err(error) => first_word(format!("{error:?}")),
        };
        *self.report.calls.entry(format!("{call} {end}")).or_default() += 1;
    }

    /// Shows the checkers which servers act, and where the sessions are.
    fn observe_end(&mut self) {
        let acting: Vec<Term> = self.hosts.iter().map(Host::term).filter(|t| t.0 > 0).collect();
        let place = |p: &Process| {
            let lease = p.session.as_ref()?.lease();
            Some((format!("{}/{}", p.replica, p.shard), lease.map(|lease| lease.term)))
        };
        let sessions: Vec<_> = self.processes.iter().filter_map(place).collect();
        let leftovers = self.leftovers();
        self.observe(Fact::Over { acting: &acting, sessions: &sessions, leftovers: &leftovers });
    }

    /// Long after the last fault every rollout holds the newest version, which is published.
    pub(crate) fn check_end(&mut self) {
        self.observe_end();
        let books = self.books();
        let models = books.iter().flat_map(|books| books.models.values());
        let latest = models.filter_map(|m| m.versions.keys().max()).max();
        let detail = match latest {
            None => Some("no version is available at the end".to_owned()),
            Some(latest) => self
                .processes
                .iter()
                .find(|p| p.role == Role::Rollout && p.version() != Some(*latest))
                .map(|p| format!("{} holds {:?}, not {latest}", p.replica, p.version())),
        };
        if let Some(detail) = detail {
            self.violated("L1", detail);
        }
    }
}
