//! What watches the world: checkers, coverage points, counts, the story.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::{CallError, Span, Term, Time};

use crate::base::weight::weight;
use crate::checkers::{ActingTerms, Fact};
use crate::parts::host::ServerHost;
use crate::report::story::{self, StoryEvent};
use crate::world::World;

/// How often the memory of the servers is weighed. Each time all of it is walked through.
const WEIGH_EVERY: Span = Span::from_secs(2);

impl World {
    /// Shows a fact to the checkers and to the coverage points, and writes it into the story.
    pub(crate) fn observe(&mut self, fact: Fact<'_>) {
        if self.story.is_some()
            && let Some((process, what)) = story::tell(&fact)
        {
            let who = process.map_or("world".to_owned(), |index| self.processes[index].name());
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
        let call = call.map(|call| first_word(format!("{call:?}"))).unwrap_or_default();
        let end = match result {
            Ok(answer) => first_word(format!("{answer:?}")),
            Err(error) => first_word(format!("{error:?}")),
        };
        *self.report.calls.entry(format!("{call} {end}")).or_default() += 1;
    }

    /// Shows the checkers the end of the world: which servers act, where the sessions are, what is left over.
    fn observe_end(&mut self) {
        let (acting, sessions) = self.terms();
        let terms = ActingTerms { acting: &acting, sessions: &sessions };
        let (leftovers, disagreements) = (self.leftovers(), self.disagreements());
        let (leftovers, disagreements) = (&leftovers[..], &disagreements[..]);
        self.observe(Fact::Over { terms, leftovers, disagreements });
    }

    /// Shows the checkers the state of the world between two events.
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

    /// Shows the checkers how much memory the acting servers take.
    fn weigh(&mut self) {
        let servers = self.hosts.iter().filter_map(|host| host.server.as_ref());
        let acting = servers.filter(|server| server.term() > Term(0));
        let weights: Vec<_> = acting.map(|server| (server.term(), weight(&**server))).collect();
        for (term, bytes) in weights {
            self.observe(Fact::Weighed { term, bytes });
        }
    }

    /// The time from which on exactly one server acts. The rest of the quiet time is for reads.
    fn settled_at(&self) -> Time {
        Time(0) + self.options.fault_time + self.options.quiet_time.scaled(3, 4)
    }

    fn terms(&self) -> (Vec<Term>, Vec<(String, Option<Term>)>) {
        let acting = self.hosts.iter().map(ServerHost::term).filter(|term| term.0 > 0).collect();
        let sessions = self.processes.iter().filter_map(|process| {
            let lease = process.session.as_ref()?.lease();
            Some((process.name(), lease.map(|lease| lease.term)))
        });
        (acting, sessions.collect())
    }

    /// Checks that every rollout holds the newest published version, long after the last fault.
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

/// The name of a call's or of a result's variant, as `Debug` prints the variant first.
fn first_word(text: String) -> String {
    text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_owned()
}
