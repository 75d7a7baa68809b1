//! L5: after the last fault all live sessions come to one term, in which one server acts. The
//! checker looks at this repeatedly once it must be so. And takeovers end: each server takes over
//! once at most, and once more for each term that some session still knew and the acting servers
//! did not (docs/concepts/takeovers.md has the argument).

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{ClientMessage, Open};
use weightcast_protocol::{Term, Time};

use super::{Checker, Fact};

/// Messages that are under way when the last fault ends arrive within this time.
const ON_ITS_WAY: weightcast_protocol::Span = weightcast_protocol::Span::from_millis(5);

/// A session that opens when all is well is open within this time: messages take milliseconds, a
/// restart less than a second.
const OPENS_WITHIN: weightcast_protocol::Span = weightcast_protocol::Span::from_secs(2);

pub(super) struct SameTerm {
    /// How many servers there are.
    servers: usize,
    /// When the last fault seen so far ends.
    calm_at: Time,
    terms: BTreeSet<Term>,
    /// Terms that began after the last fault.
    late: Vec<Term>,
    /// Earlier terms whose tickets sessions have shown after the last fault.
    shown: BTreeSet<Term>,
    /// Since when each session has been without a term, although all must be well.
    out: BTreeMap<String, Time>,
}

impl SameTerm {
    pub(super) fn new(servers: u32) -> Self {
        let (terms, late, shown) = Default::default();
        let out = BTreeMap::new();
        Self { servers: servers as usize, calm_at: Time(0), terms, late, shown, out }
    }

    fn struck(&mut self, until: Time) {
        (self.late, self.shown) = Default::default();
        self.calm_at = self.calm_at.max(until);
    }

    fn opens(&mut self, now: Time, open: &Open) {
        let old = open.ticket.map(|ticket| ticket.proof.term);
        let old = old.filter(|term| now >= self.calm_at && !self.late.contains(term));
        self.shown.extend(old);
    }

    fn took_over(&mut self, now: Time, term: Term) -> Option<String> {
        if term == Term(0) || !self.terms.insert(term) || now < self.calm_at + ON_ITS_WAY {
            return None;
        }
        self.late.push(term);
        // One more: a takeover that was under way when the faults ceased.
        let many = self.late.len() > self.servers * (1 + self.lifts()) + 1;
        many.then(|| format!("terms {:?} began after the last fault", self.late))
    }

    /// A session that has been without a term for longer than [`OPENS_WITHIN`].
    fn shut_out(&mut self, now: Time, sessions: &[(String, Option<Term>)]) -> Option<String> {
        let out: Vec<&String> =
            sessions.iter().filter(|(_, own)| own.is_none()).map(|(name, _)| name).collect();
        self.out.retain(|name, _| out.contains(&name));
        out.into_iter().find_map(|name| {
            let since = *self.out.entry(name.clone()).or_insert(now);
            let long = now > since + OPENS_WITHIN;
            long.then(|| format!("{name} has not been open for long"))
        })
    }

    /// How many shown terms of before the last fault may have ended a term that began after it.
    fn lifts(&self) -> usize {
        let Some(first) = self.late.iter().map(|term| term.step()).min() else { return 0 };
        self.shown.iter().filter(|term| term.step() >= first).count()
    }
}

/// What is wrong unless exactly one server acts and all sessions are in its term.
fn same_term(acting: &[Term], sessions: &[(String, Option<Term>)]) -> Option<String> {
    let [term] = acting else { return Some(format!("servers act in terms {acting:?}")) };
    let stray = |(_, own): &&(String, Option<Term>)| *own != Some(*term);
    sessions.iter().find(stray).map(|(name, own)| {
        let own = own.map_or("none".to_owned(), |own| own.to_string());
        format!("the server acts in term {term}, {name} is in {own}")
    })
}
impl Checker for SameTerm {
    fn name(&self) -> &'static str {
        "L5"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Struck { until, .. } => {
                self.struck(*until);
                None
            }
            Fact::Heard { message: ClientMessage::Open(open), .. } => {
                self.opens(now, open);
                None
            }
            Fact::Books(books) => self.took_over(now, books.term),
            Fact::Over { terms, .. } => same_term(terms.acting, terms.sessions),
            Fact::Looked { settled: Some(terms), .. } => {
                // A session that has just started has no term yet; `shut_out` bounds how long.
                let open = terms.sessions.iter().filter(|(_, own)| own.is_some());
                same_term(terms.acting, &open.cloned().collect::<Vec<_>>())
                    .or_else(|| self.shut_out(now, terms.sessions))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightcast_protocol::message::{EpochPolicy, Location, Role};
    use weightcast_protocol::{Epoch, Incarnation, PROTOCOL, SessionId, TermProof, Ticket};

    const CALM: Time = Time(1_000_000_000);
    const LATE: Time = Time(2_000_000_000);

    /// The term that server 0 takes after so many steps, in this life.
    fn term(step: u64, life: u64) -> Term {
        let earlier = (1..step).fold(Term(0), |term, _| term.after(0, 0).expect("few steps"));
        earlier.after(0, life).expect("few steps")
    }

    /// A checker that has seen these terms before the last fault.
    fn checker(servers: u32, before: &[Term]) -> SameTerm {
        let mut checker = SameTerm::new(servers);
        for term in before {
            assert_eq!(checker.took_over(Time(0), *term), None);
        }
        checker.struck(CALM);
        checker
    }

    /// A session that was open in this term opens again.
    fn shows(checker: &mut SameTerm, at: Time, term: Term) {
        let proof = TermProof { term, ..TermProof::default() };
        let incarnation = Incarnation { term, number: 1 };
        let (epoch, held, mac) = (Epoch(0), None, Default::default());
        let open = Open {
            protocol: PROTOCOL,
            session: SessionId(1),
            model: "policy".into(),
            replica: "r".into(),
            shard: 0,
            num_shards: 1,
            role: Role::Rollout,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: Location::default(),
            data_address: String::new(),
            ticket: Some(Ticket { proof, incarnation, epoch, held, mac }),
            rejoins: false,
            activate: true,
        };
        checker.opens(at, &open);
    }

    /// How many of these terms may begin one after the other.
    fn accepted(checker: &mut SameTerm, terms: impl IntoIterator<Item = Term>) -> usize {
        terms.into_iter().take_while(|term| checker.took_over(LATE, *term).is_none()).count()
    }

    #[test]
    fn a_server_is_lifted_once_by_each_term_that_is_later_than_its_own() {
        // One that knows nothing takes the first step, though others have been further.
        let old = [term(1, 9), term(2, 8), term(5, 7)];
        let mut checker = checker(1, &old);
        assert_eq!(checker.took_over(LATE, term(1, 3)), None);
        for old in old {
            shows(&mut checker, LATE, old);
            assert_eq!(checker.took_over(LATE, term(old.step() + 1, 3)), None);
        }
        // The one that was on its way, and no more.
        assert_eq!(accepted(&mut checker, (7..20).map(|step| term(step, 3))), 1);
    }

    #[test]
    fn servers_take_over_once_each_when_all_know_the_same() {
        let mut checker = checker(3, &[term(4, 1)]);
        shows(&mut checker, LATE, term(4, 1));
        assert_eq!(accepted(&mut checker, (5..20).map(|step| term(step, 1))), 4);
    }

    #[test]
    fn terms_that_began_after_the_last_fault_lift_nobody() {
        let mut checker = checker(1, &[term(1, 1)]);
        for step in 2..4 {
            assert_eq!(checker.took_over(LATE, term(step, 1)), None);
            shows(&mut checker, LATE, term(step, 1));
        }
        assert!(checker.took_over(LATE, term(4, 1)).is_some());
    }

    #[test]
    fn what_is_shown_while_there_are_faults_does_not_count_afterwards() {
        let mut checker = checker(1, &[term(7, 1), term(8, 1)]);
        shows(&mut checker, Time(CALM.0 - 1), term(7, 1));
        shows(&mut checker, LATE, term(8, 1));
        checker.struck(CALM);
        assert_eq!(accepted(&mut checker, (2..20).map(|step| term(step, 1))), 2);
    }
}
