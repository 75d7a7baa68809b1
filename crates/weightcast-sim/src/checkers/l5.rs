//! L5: when faults have ceased all live sessions come to the same term, in which one server acts, and
//! servers do not take over from each other for long: each once at most.

use std::collections::BTreeSet;

use weightcast_protocol::{Term, Time};

use super::{Checker, Fact};

/// What is on its way when the last fault is over arrives within that.
const ON_ITS_WAY: weightcast_protocol::Span = weightcast_protocol::Span::from_millis(5);

pub(super) struct SameTerm {
    /// How many servers there are.
    servers: usize,
    /// When the last fault that was seen is over.
    calm_at: Time,
    terms: BTreeSet<Term>,
    /// Terms that were taken after that.
    late: Vec<Term>,
}

impl SameTerm {
    pub(super) fn new(servers: u32) -> Self {
        let (terms, late) = (BTreeSet::new(), Vec::new());
        Self { servers: servers as usize, calm_at: Time(0), terms, late }
    }

    fn took_over(&mut self, now: Time, term: Term) -> Option<String> {
        if term == Term(0) || !self.terms.insert(term) || now < self.calm_at + ON_ITS_WAY {
            return None;
        }
        self.late.push(term);
        // Every server once, and the one that was on its way when the faults ceased.
        let many = self.late.len() > self.servers + 1;
        many.then(|| format!("terms {:?} began after the last fault", self.late))
    }

    fn at_end(&self, acting: &[Term], sessions: &[(String, Option<Term>)]) -> Option<String> {
        let [term] = acting else { return Some(format!("servers act in terms {acting:?}")) };
        let stray = |(_, own): &&(String, Option<Term>)| *own != Some(*term);
        sessions.iter().find(stray).map(|(name, own)| {
            let own = own.map_or("none".to_owned(), |own| own.to_string());
            format!("the server acts in term {term}, {name} is in {own}")
        })
    }
}

impl Checker for SameTerm {
    fn name(&self) -> &'static str {
        "L5"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Struck { until, .. } => {
                (self.calm_at, self.late) = (self.calm_at.max(*until), Vec::new());
                None
            }
            Fact::Books(books) => self.took_over(now, books.term),
            Fact::Over { acting, sessions, .. } => self.at_end(acting, sessions),
            _ => None,
        }
    }
}
