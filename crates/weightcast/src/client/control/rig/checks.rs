//! What must hold after each event: the memory is what the session says, and served is what it says.

use weightcast_protocol::Version;
use weightcast_protocol::session::Session;

use std::time::{Duration, Instant};

use super::worker::{RigClient, content};
use super::world::RigWorld;

impl RigWorld {
    /// Whoever holds a version has noted its parts, and serves the note with it.
    pub(super) fn notes_are_served(&self) {
        for worker in &self.workers {
            let (memory, shared) = (&worker.control.memory, &worker.control.shared);
            let [id] = memory.exposed[..] else { continue };
            let soon = Instant::now() + Duration::from_secs(20);
            let (address, generation) = (shared.exports.addr().to_string(), worker.generation());
            let peer = shared.routes.peer(&address, soon).expect("its own data port");
            let served = peer.note(id, generation, soon).expect("it is served");
            assert!(served.is_some() && served == memory.note, "{}: its note", worker.name);
        }
    }
}

impl RigClient {
    /// Panics if anything is not as the session says.
    pub(super) fn check(&self, said: &str) {
        let name = &self.name;
        let session: &Session = &self.control.session;
        let memory = &self.control.memory;
        let view = *self.control.shared.view.lock().expect("no panic while held");
        assert_eq!(view.held, session.version(), "{name} after {said}: getters");
        assert_eq!(view.generation, session.generation(), "{name} after {said}: getters");
        // What is served is not public: the machine's own word for it is.
        let says = format!("{session:?}");
        // What others write is served once it is whole.
        let filling = says.contains("exposed: Filling") && !memory.is_pushed_to();
        let exposed = says.contains("exposed: All") || filling;
        let current = self.control.shared.current().map(|(_, export)| export);
        let own = current.map(|export| export.at(session.generation().0));
        let expected: Vec<_> = own.filter(|_| exposed).into_iter().collect();
        assert_eq!(memory.exposed, expected, "{name} after {said}: exports");
        let table = self.control.shared.exports.exports().len();
        let record = usize::from(memory.record.is_some());
        assert_eq!(table, expected.len() + record, "{name} after {said}: the data port's table");
        if let Some(version) = session.version() {
            self.check_content(version, said);
            let pushed = self.control.shared.push.sending.newest();
            assert!(pushed >= Some(version), "{name} after {said}: grants wait for nothing");
        }
        let noted = memory.note.is_some() && session.version().is_none();
        assert!(!noted, "{name} after {said}: a note of what is not held any more");
        for (region, bytes) in &self.released {
            assert!(region.to_vec() == *bytes, "{name} after {said}: released memory was written");
        }
    }

    fn generation(&self) -> u64 {
        self.control.session.generation().0
    }

    /// What can be seen of it from outside, in words that no name of a type is part of.
    pub(super) fn state(&self) -> String {
        let view = *self.control.shared.view.lock().expect("no panic while held");
        let (held, generation) = (view.held.map(|version| version.to_string()), view.generation);
        let state = self.control.session.state() as u8;
        let exposed = self.control.memory.exposed.len();
        let table = self.control.shared.exports.exports().len();
        format!("{state} {held:?} {generation} {exposed} {table}")
    }

    fn check_content(&self, version: Version, said: &str) {
        for (index, region) in self.regions.iter().enumerate() {
            let right = region.to_vec() == content(self.form, index, version.number + self.lies);
            let state = self.control.session.state();
            assert!(right, "{} after {said}: not {version:?}, in {state:?}", self.name);
        }
    }
}
