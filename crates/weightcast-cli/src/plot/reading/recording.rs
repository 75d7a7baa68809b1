//! What a server's recording shows over time: it is played back, and its books are read after each event that counts.

use std::collections::BTreeMap;

use weightcast_protocol::recording::{Recording, RecordingError};
use weightcast_protocol::server::{ModelSnapshot, Snapshot};
use weightcast_protocol::{Time, Version};
use weightcast_sim::{RetoldEnd, watch};

/// A job, as its server knew it.
#[derive(Debug)]
pub(crate) struct RecordedJob {
    /// Why the recording was written.
    pub(crate) cause: String,
    /// Events in it.
    pub(crate) events: u64,
    /// The first and the last moment, on the server's clock.
    pub(crate) from_s: f64,
    pub(crate) to_s: f64,
    /// By model and replica, the oldest version first.
    pub(crate) held: BTreeMap<(String, String), Vec<HeldVersion>>,
    /// By model, at each moment: how many versions the replica furthest behind is behind.
    pub(crate) behind: BTreeMap<String, Vec<(f64, f64)>>,
    /// By model, at each moment: how many replicas read.
    pub(crate) readers: BTreeMap<String, Vec<(f64, f64)>>,
    /// How the playing ended.
    pub(crate) end: RetoldEnd,
}

/// A version that a replica held.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct HeldVersion {
    pub(crate) version: Version,
    pub(crate) from_s: f64,
    /// The end of the recording, if it was still held.
    pub(crate) to_s: f64,
    open: bool,
}

/// Plays a server's recording.
///
/// Errors: it is of a session, or of machines that this build cannot play.
pub(crate) fn read(recording: &Recording) -> Result<RecordedJob, RecordingError> {
    let mut job = RecordedJob {
        cause: recording.head.cause.to_string(),
        events: recording.head.events,
        from_s: f64::INFINITY,
        to_s: 0.0,
        held: BTreeMap::new(),
        behind: BTreeMap::new(),
        readers: BTreeMap::new(),
        end: RetoldEnd::Faithful,
    };
    job.end = watch(recording, |at, server| job.see(at, &server.snapshot(at)))?;
    job.from_s = job.from_s.min(job.to_s);
    let to_s = job.to_s;
    let held = job.held.values_mut().flatten();
    held.filter(|held| held.open).for_each(|held| held.to_s = to_s);
    Ok(job)
}

impl RecordedJob {
    fn see(&mut self, at: Time, books: &Snapshot) {
        let at_s = at.0 as f64 / 1e9;
        (self.from_s, self.to_s) = (self.from_s.min(at_s), at_s);
        let mut holds: BTreeMap<(String, String), Version> = BTreeMap::new();
        for (name, model) in &books.models {
            let holders = model.replicas.iter().filter_map(|r| Some((&r.name, r.version?)));
            holds.extend(holders.map(|(replica, held)| ((name.clone(), replica.clone()), held)));
            rise(self.behind.entry(name.clone()).or_default(), at_s, furthest_behind(model));
            let readers = model.replicas.iter().filter(|r| r.reading.is_some()).count();
            rise(self.readers.entry(name.clone()).or_default(), at_s, readers);
        }
        self.hold(at_s, holds);
    }

    /// Closes the versions that are held no longer, and opens those that are new.
    fn hold(&mut self, at_s: f64, mut holds: BTreeMap<(String, String), Version>) {
        for (replica, held) in &mut self.held {
            let Some(last) = held.last_mut().filter(|last| last.open) else { continue };
            if holds.get(replica) == Some(&last.version) {
                holds.remove(replica);
            } else {
                (last.to_s, last.open) = (at_s, false);
            }
        }
        for (replica, version) in holds {
            let held = HeldVersion { version, from_s: at_s, to_s: at_s, open: true };
            self.held.entry(replica).or_default().push(held);
        }
    }
}

fn furthest_behind(model: &ModelSnapshot) -> usize {
    let behind = model.replicas.iter().filter_map(|replica| replica.staleness.as_ref());
    behind.map(|staleness| staleness.versions_behind).max().unwrap_or(0)
}

/// Adds a number to a line of steps.
fn rise(line: &mut Vec<(f64, f64)>, at_s: f64, number: usize) {
    let number = number as f64;
    let Some(&(_, before)) = line.last() else { return line.push((at_s, number)) };
    if before != number {
        line.extend([(at_s, before), (at_s, number)]);
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::limits::SERVER_REEL;
    use weightcast_protocol::recording::MachineKind;
    use weightcast_sim::{Harshness, WorldOptions, record, retell};

    use super::*;

    fn servers(seed: u64) -> impl Iterator<Item = Recording> {
        let options = Harshness::default().options(seed);
        let recorded = record(seed, &WorldOptions { recorders: Some(SERVER_REEL), ..options });
        recorded.into_iter().filter(|recording| recording.head.kind == MachineKind::Server)
    }

    /// What the story tells of commits is in the picture: the same version, at the same moment.
    #[test]
    fn each_version_that_a_replica_is_told_to_hold_is_held_from_then_on() {
        let mut commits = 0;
        for recording in (0..20).flat_map(servers) {
            let job = read(&recording).expect("the build is the same");
            for line in retell(&recording).expect("the build is the same").0 {
                let Some((replica, _)) = line.who.split_once('/') else { continue };
                let Some((_, held)) = line.what.split_once(": holds ") else { continue };
                let at_s = line.at.0 as f64 / 1e9;
                let periods = job.held.iter().filter(|((_, name), _)| name == replica);
                let found = periods.flat_map(|(_, periods)| periods).any(|period| {
                    held.starts_with(&period.version.to_string())
                        && (period.from_s..=period.to_s).contains(&at_s)
                });
                assert!(found, "{line}: {:?}", job.held);
                commits += 1;
            }
        }
        assert!(commits > 100, "{commits}");
    }

    #[test]
    fn a_version_ends_with_the_next_or_with_the_recording() {
        for recording in (0..20).flat_map(servers) {
            let job = read(&recording).expect("the build is the same");
            for held in job.held.values() {
                assert!(
                    held.iter().all(|h| job.from_s <= h.from_s && h.from_s <= h.to_s),
                    "{held:?}"
                );
                assert!(held.windows(2).all(|pair| pair[0].to_s <= pair[1].from_s), "{held:?}");
                let (last, before) = held.split_last().expect("no replica without a version");
                assert!(!before.iter().any(|h| h.open), "{held:?}");
                assert!(!last.open || last.to_s == job.to_s, "{held:?}");
            }
        }
    }

    #[test]
    fn a_line_of_steps_rises_where_its_number_changes() {
        let mut line = Vec::new();
        for (at_s, number) in [(0.0, 1), (1.0, 1), (2.0, 3), (4.0, 3), (5.0, 0)] {
            rise(&mut line, at_s, number);
        }
        assert_eq!(line, [(0.0, 1.0), (2.0, 1.0), (2.0, 3.0), (5.0, 3.0), (5.0, 0.0)]);
    }
}
