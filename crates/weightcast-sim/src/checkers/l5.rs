//! L5: when faults have ceased all live sessions come to the same term, in which one server acts.

use weightcast_protocol::{Term, Time};

use super::{Checker, Fact};

pub(super) struct SameTerm;

impl Checker for SameTerm {
    fn name(&self) -> &'static str {
        "L5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Over { acting, sessions, .. } = fact else { return None };
        let [term] = acting else { return Some(format!("servers act in terms {acting:?}")) };
        let stray = |(_, own): &&(String, Option<Term>)| *own != Some(*term);
        sessions.iter().find(stray).map(|(name, own)| {
            let own = own.map_or("none".to_owned(), |own| own.to_string());
            format!("the server acts in term {term}, {name} is in {own}")
        })
    }
}
