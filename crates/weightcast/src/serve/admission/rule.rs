//! The rule of who may stay, written a second time: every short course in which connections come,
//! show the token, leave and are closed, against lists that are kept by hand.

use std::collections::BTreeSet;

use tonic::Code;

use super::*;

const STRANGERS_HERE: usize = 2;
const VISITS: usize = 3;
/// A connection comes; or an earlier one shows the token, leaves, or is closed.
const ACTIONS: usize = 1 + 3 * VISITS;
const STEPS: u32 = 6;

/// Connections in the order in which they came, and which of them are what.
struct Ledger {
    most_clients: usize,
    admission: Admission,
    visits: Vec<(Option<AdmittedPlace>, Pass, oneshot::Receiver<()>)>,
    strangers: BTreeSet<usize>,
    clients: BTreeSet<usize>,
}

impl Ledger {
    fn new(most_clients: usize) -> Self {
        Self {
            most_clients,
            admission: Admission::with_limits("test", STRANGERS_HERE, most_clients),
            visits: Vec::new(),
            strangers: BTreeSet::new(),
            clients: BTreeSet::new(),
        }
    }

    /// Whether there was anything to do.
    fn act(&mut self, action: usize, now: Instant) -> bool {
        let (who, what) = match action.checked_sub(1) {
            None => return self.comes(now),
            Some(action) => (action / 3, action % 3),
        };
        if who >= self.visits.len() {
            return false;
        }
        match what {
            0 => self.shows(who),
            1 => {
                self.visits[who].0 = None;
                self.strangers.remove(&who);
                self.clients.remove(&who);
            }
            _ => {
                self.visits[who].1.close();
                self.clients.remove(&who);
            }
        }
        true
    }

    fn comes(&mut self, now: Instant) -> bool {
        if self.visits.len() == VISITS {
            return false;
        }
        if self.strangers.len() == STRANGERS_HERE {
            self.strangers.pop_first();
        }
        let (place, cut_off) = self.admission.enter(ClientOrigin::Process(1), now);
        self.strangers.insert(self.visits.len());
        let pass = place.pass();
        self.visits.push((Some(place), pass, cut_off));
        true
    }

    /// A client stays a client, however many there are; a stranger becomes one if there is a place.
    fn shows(&mut self, who: usize) {
        let expected = if self.clients.contains(&who) {
            Ok(())
        } else if self.clients.len() == self.most_clients {
            Err(Code::ResourceExhausted)
        } else if self.strangers.remove(&who) {
            self.clients.insert(who);
            Ok(())
        } else {
            Err(Code::Unavailable)
        };
        let shown = self.visits[who].1.show().map_err(|status| status.code());
        assert_eq!(shown, expected, "of {} clients", self.most_clients);
    }

    /// A connection that is in neither list was told to close, or has left.
    fn check(&mut self) {
        let numbers = |ids: Vec<u64>| ids.into_iter().map(|id| id as usize).collect();
        let book = self.admission.book();
        let strangers: BTreeSet<usize> = numbers(book.strangers.keys().copied().collect());
        let clients: BTreeSet<usize> = numbers(book.clients.keys().copied().collect());
        drop(book);
        assert_eq!((&strangers, &clients), (&self.strangers, &self.clients));
        for (who, (place, _, cut_off)) in self.visits.iter_mut().enumerate() {
            let is_in = strangers.contains(&who) || clients.contains(&who);
            assert_eq!(place.is_some() && cut_off.try_recv() == Ok(()), place.is_some() && !is_in);
        }
    }
}

#[test]
fn every_short_course_goes_by_the_rule() {
    let now = Instant::now();
    for most_clients in 1..=VISITS {
        for course in 0..ACTIONS.pow(STEPS) {
            let mut ledger = Ledger::new(most_clients);
            let actions = (0..STEPS).map(|step| course / ACTIONS.pow(STEPS - 1 - step) % ACTIONS);
            // What cannot happen makes it a shorter one, which is another course.
            if actions.into_iter().all(|action| ledger.act(action, now)) {
                ledger.check();
            }
        }
    }
}
