//! Who watches the world: checkers, coverage points, counts, the story.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::{CallError, Span, Term, Time};

use crate::base::weight::weight;
use crate::checkers::{ActingTerms, Fact};
use crate::parts::host::ServerHost;
use crate::parts::process::Process;
use crate::report::story::{self, StoryEvent};
use crate::world::World;

/// How often it is looked at how much servers remember: all of it is gone through.
const WEIGH_EVERY: Span = Span::from_secs(2);

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
        let (acting, sessions) = self.terms();
        let terms = ActingTerms { acting: &acting, sessions: &sessions };
        let (leftovers, disagreements) = (self.leftovers(), self.disagreements());
        let (leftovers, disagreements) = (&leftovers[..], &disagreements[..]);
        self.observe(Fact::Over { terms, leftovers, disagreements });
    }

    /// Shows the checkers how things stand, in passing.
    pub(crate) fn look_around(&mut self) {
        let disagreements = self.disagreements();
        let (acting, sessions) = self.terms();
        let settled = (self.now >= self.settled_at())
            .then_some(ActingTerms { acting: &acting, sessions: &sessions });
        self.observe(Fact::Looked { settled, disagreements: &disagreements });
        if self.now.0.is_multiple_of(WEIGH_EVERY.0) {
            self.weigh();
        }
    }

    /// Shows the checkers how much the servers that act remember.
    fn weigh(&mut self) {
        let servers = self.hosts.iter().filter_map(|host| host.server.as_ref());
        let acting = servers.filter(|server| server.term() > Term(0));
        let weights: Vec<_> = acting.map(|server| (server.term(), weight(server))).collect();
        for (term, bytes) in weights {
            self.observe(Fact::Weighed { term, bytes });
        }
    }

    /// From then on one server acts: what is left of the quiet time is for reads.
    fn settled_at(&self) -> Time {
        Time(0) + self.options.fault_time + self.options.quiet_time.scaled(3, 4)
    }

    fn terms(&self) -> (Vec<Term>, Vec<(String, Option<Term>)>) {
        let acting = self.hosts.iter().map(ServerHost::term).filter(|term| term.0 > 0).collect();
        let place = |p: &Process| {
            let lease = p.session.as_ref()?.lease();
            Some((format!("{}/{}", p.replica, p.shard), lease.map(|lease| lease.term)))
        };
        (acting, self.processes.iter().filter_map(place).collect())
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
