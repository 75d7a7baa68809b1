//! The book of connections: strangers, until they have shown the token, and clients.
//!
//! A stranger has little time, and keeps its place only until newer strangers need it: the origin
//! with the most strangers gives up its oldest. So garbage, slow drips and floods cost a few
//! sockets and keep nobody out.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tonic::Status;
use weightcast_transport::door::{AcceptError, makes_room};

use super::queue::ClientOrigin;
use super::transfers::Turns;
use crate::limits::{CONNECTIONS, SCRAPERS, STRANGER_DEADLINE, STRANGERS};

/// How often the log may say the same: a flood must not fill it.
const SAY: Duration = Duration::from_secs(60);

/// The book of a server's connections; clones share it.
#[derive(Clone)]
pub(super) struct Admission(Arc<Mutex<Book>>);

struct Book {
    /// Name of the port, for the log.
    port: &'static str,
    /// In the order in which they came.
    strangers: BTreeMap<u64, Stranger>,
    clients: BTreeMap<u64, Client>,
    most_strangers: usize,
    most_clients: usize,
    next: u64,
    turned_away: u64,
    said_turned_away: Option<Instant>,
    said_not_accepted: Option<Instant>,
}

struct Stranger {
    origin: ClientOrigin,
    until: Instant,
    /// Tells the connection to close.
    cut: oneshot::Sender<()>,
}

/// Tells a client's connection to close.
type Client = oneshot::Sender<()>;

/// One connection's line in the book; struck out when it is dropped.
pub(super) struct AdmittedPlace(Pass);

/// A connection's entry in the book, which goes with each of its requests.
#[derive(Clone)]
pub(super) struct Pass {
    id: u64,
    admission: Admission,
    turns: Turns,
}

impl Admission {
    /// Of the control port.
    pub(super) fn new() -> Self {
        Self::with_limits("control", STRANGERS, CONNECTIONS)
    }

    /// Of the metrics port. All scrapers are strangers here, whatever they show: each connection has a
    /// stranger's time.
    pub(super) fn of_scrapers() -> Self {
        Self::with_limits("metrics", SCRAPERS, 0)
    }

    fn with_limits(port: &'static str, most_strangers: usize, most_clients: usize) -> Self {
        Self(Arc::new(Mutex::new(Book {
            port,
            strangers: BTreeMap::new(),
            clients: BTreeMap::new(),
            most_strangers,
            most_clients,
            next: 0,
            turned_away: 0,
            said_turned_away: None,
            said_not_accepted: None,
        })))
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().expect("no panic while held")
    }

    /// A place for a new connection, and what tells it to close.
    pub(super) fn enter(
        &self,
        origin: ClientOrigin,
        now: Instant,
    ) -> (AdmittedPlace, oneshot::Receiver<()>) {
        let mut book = self.book();
        while book.strangers.len() >= book.most_strangers {
            book.give_way(Some(origin), now);
        }
        let id = book.next;
        book.next += 1;
        let (cut, cut_off) = oneshot::channel();
        book.strangers.insert(id, Stranger { origin, until: now + STRANGER_DEADLINE, cut });
        (AdmittedPlace(Pass { id, admission: self.clone(), turns: Turns::new(origin) }), cut_off)
    }

    /// No connection could be accepted: a stranger gives way if that helps. True if the door has to
    /// rest before it tries again.
    pub(super) fn not_accepted(&self, error: &io::Error, now: Instant) -> bool {
        let whose = AcceptError::of(error);
        if whose == AcceptError::Passing {
            return false;
        }
        let mut book = self.book();
        if whose == AcceptError::Exhausted {
            book.give_way(None, now);
        }
        if is_news(&mut book.said_not_accepted, now) {
            let port = book.port;
            tracing::warn!(%error, "{port} port can accept no connection, and tries again");
        }
        true
    }

    /// When the next stranger's time is over: the oldest one's, because all have the same time.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.book().strangers.values().next().map(|stranger| stranger.until)
    }

    /// Closes the strangers whose time is over.
    pub(super) fn close_late(&self, now: Instant) {
        let mut book = self.book();
        while let Some((&id, _)) = book.strangers.iter().next().filter(|(_, s)| s.until <= now) {
            book.turn_away(id, now);
        }
    }
}

impl Book {
    /// A stranger makes room, for a newcomer or for the process.
    fn give_way(&mut self, newcomer: Option<ClientOrigin>, now: Instant) {
        let strangers = self.strangers.iter().map(|(id, stranger)| (*id, stranger.origin));
        if let Some(id) = makes_room(strangers, newcomer) {
            self.turn_away(id, now);
        }
    }

    fn turn_away(&mut self, id: u64, now: Instant) {
        let Some(stranger) = self.strangers.remove(&id) else { return };
        // It may have gone by itself.
        let _ = stranger.cut.send(());
        self.turned_away += 1;
        if is_news(&mut self.said_turned_away, now) {
            tracing::warn!(
                connections = self.turned_away,
                "{} port closed what had sent no request with the token within \
                 {STRANGER_DEADLINE:?}, or was the oldest of {} such connections",
                self.port,
                self.most_strangers
            );
        }
    }
}

/// Whether the log may say something again; if so, notes that it was said now.
fn is_news(said: &mut Option<Instant>, now: Instant) -> bool {
    let news = said.is_none_or(|said| now - said >= SAY);
    if news {
        *said = Some(now);
    }
    news
}

impl Pass {
    /// The connection has shown the token: it may stay.
    ///
    /// # Errors
    /// There are too many clients, or the connection is being closed.
    pub(super) fn show(&self) -> Result<(), Status> {
        let mut book = self.admission.book();
        if book.clients.contains_key(&self.id) {
            return Ok(());
        }
        if book.clients.len() >= book.most_clients {
            let most = book.most_clients;
            return Err(Status::resource_exhausted(format!(
                "the server has {most} connections, its limit: run another for the next job"
            )));
        }
        match book.strangers.remove(&self.id) {
            Some(stranger) => drop(book.clients.insert(self.id, stranger.cut)),
            None => return Err(Status::unavailable("the token came too late: try again")),
        }
        Ok(())
    }

    /// The connection's turns to send and to be sent what is large.
    pub(super) fn turns(&self) -> &Turns {
        &self.turns
    }

    /// Closes the connection, and with it all that waits in it.
    pub(super) fn close(&self) {
        if let Some(cut) = self.admission.book().clients.remove(&self.id) {
            let _ = cut.send(());
        }
    }
}

impl AdmittedPlace {
    pub(super) fn pass(&self) -> Pass {
        self.0.clone()
    }
}

impl Drop for AdmittedPlace {
    fn drop(&mut self) {
        let mut book = self.0.admission.book();
        book.strangers.remove(&self.0.id);
        book.clients.remove(&self.0.id);
    }
}

#[cfg(test)]
mod rule;

#[cfg(test)]
mod tests {
    use rustix::io::Errno;
    use tokio::sync::oneshot::error::TryRecvError;
    use tonic::Code;

    use super::*;

    const HERE: ClientOrigin = ClientOrigin::Process(1);
    const THERE: ClientOrigin = ClientOrigin::Process(2);

    type Visit = (AdmittedPlace, oneshot::Receiver<()>);

    fn enter(admission: &Admission, count: usize, now: Instant) -> Vec<Visit> {
        (0..count).map(|_| admission.enter(HERE, now)).collect()
    }

    fn is_cut((_, cut_off): &mut Visit) -> bool {
        cut_off.try_recv() == Ok(())
    }

    #[test]
    fn the_newest_strangers_are_kept() {
        let admission = Admission::with_limits("test", 3, 9);
        let mut visits = enter(&admission, 3, Instant::now());
        assert!(!visits.iter_mut().any(is_cut));
        visits.extend(enter(&admission, 1, Instant::now()));
        assert_eq!(visits.iter_mut().map(is_cut).collect::<Vec<_>>(), [true, false, false, false]);
        let late = visits[0].0.pass().show().map_err(|status| status.code());
        assert_eq!(late, Err(Code::Unavailable));
    }

    #[test]
    fn a_flood_costs_strangers_of_its_own_origin() {
        let admission = Admission::with_limits("test", 4, 9);
        let now = Instant::now();
        let mut there = vec![admission.enter(THERE, now)];
        let mut flood = enter(&admission, 100, now);
        there.push(admission.enter(THERE, now));
        flood.extend(enter(&admission, 100, now));
        assert!(!there.iter_mut().any(is_cut));
        assert_eq!(flood.iter_mut().filter_map(|visit| (!is_cut(visit)).then_some(())).count(), 2);
        // As many of each: a newcomer takes the place of one of its own.
        there.push(admission.enter(THERE, now));
        assert_eq!(there.iter_mut().map(is_cut).collect::<Vec<_>>(), [true, false, false]);
    }

    #[test]
    fn only_what_the_system_lacks_costs_a_stranger_its_place() {
        let admission = Admission::with_limits("test", 3, 9);
        let mut visits = enter(&admission, 2, Instant::now());
        let rests = |errno: Errno| admission.not_accepted(&errno.into(), Instant::now());
        assert!(!rests(Errno::CONNABORTED) && rests(Errno::INVAL));
        assert!(!visits.iter_mut().any(is_cut));
        assert!(rests(Errno::MFILE));
        assert_eq!(visits.iter_mut().map(is_cut).collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn clients_do_not_give_way_to_strangers() {
        let admission = Admission::with_limits("test", 3, 9);
        let now = Instant::now();
        let (client, mut cut_off) = admission.enter(HERE, now);
        client.pass().show().unwrap();
        let _flood = enter(&admission, 100, now);
        admission.close_late(now + STRANGER_DEADLINE);
        assert_eq!(cut_off.try_recv(), Err(TryRecvError::Empty));
        client.pass().show().unwrap();
        client.pass().close();
        assert_eq!(cut_off.try_recv(), Ok(()), "only the server itself closes a client");
        assert!(client.pass().show().is_err());
    }

    #[test]
    fn a_stranger_that_leaves_makes_room() {
        let admission = Admission::with_limits("test", 3, 9);
        let mut visits = enter(&admission, 3, Instant::now());
        visits.remove(1);
        visits.extend(enter(&admission, 1, Instant::now()));
        assert!(!visits.iter_mut().any(is_cut));
    }

    #[test]
    fn strangers_are_closed_at_their_deadline() {
        let admission = Admission::with_limits("test", 3, 9);
        let now = Instant::now();
        assert_eq!(admission.next_deadline(), None);
        let mut first = admission.enter(HERE, now);
        let mut second = admission.enter(HERE, now + Duration::from_secs(1));
        assert_eq!(admission.next_deadline(), Some(now + STRANGER_DEADLINE));
        admission.close_late(now + STRANGER_DEADLINE - Duration::from_nanos(1));
        assert!(!is_cut(&mut first));
        admission.close_late(now + STRANGER_DEADLINE);
        assert!(is_cut(&mut first) && !is_cut(&mut second));
    }

    #[test]
    fn clients_are_counted_until_they_leave() {
        let admission = Admission::with_limits("test", 3, 2);
        let mut clients = enter(&admission, 2, Instant::now());
        clients.iter().for_each(|(place, _)| place.pass().show().unwrap());
        let (next, _cut_off) = admission.enter(HERE, Instant::now());
        let refused = next.pass().show().map_err(|status| status.code());
        assert_eq!(refused, Err(Code::ResourceExhausted));
        clients.pop();
        next.pass().show().unwrap();
    }

    #[test]
    fn the_same_is_said_once_in_a_while() {
        let (start, moment) = (Instant::now(), Duration::from_millis(1));
        let mut said = None;
        for (after, news) in [
            (Duration::ZERO, true),
            (moment, false),
            (SAY - moment, false),
            (SAY, true),
            (SAY + moment, false),
            (2 * SAY - moment, false),
            (2 * SAY, true),
            (5 * SAY, true),
        ] {
            assert_eq!(is_news(&mut said, start + after), news, "{after:?}");
        }
    }
}
