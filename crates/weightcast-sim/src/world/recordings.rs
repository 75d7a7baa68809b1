//! Recordings of the servers and sessions of a world, kept when each is over: whether what they did can be played back.

use weightcast_protocol::recording::{Recordable, RecordedMachine, Recording, RecordingCause};

use crate::world::World;

impl World {
    /// Plays to the end, or until a server gives up, and returns the recordings of all servers and sessions.
    pub(crate) fn record(mut self) -> Vec<Recording> {
        self.play(|_| false);
        if self.report.violations.iter().any(|violation| violation.invariant == "panic") {
            self.cause = RecordingCause::Panic;
        }
        (0..self.hosts.len()).for_each(|host| self.keep_server(host));
        (0..self.processes.len()).for_each(|index| self.keep_session(index));
        self.recordings
    }

    /// A server is over.
    pub(crate) fn keep_server(&mut self, host: usize) {
        if let Some(server) = self.hosts[host].server.take() {
            self.keep(&server);
        }
    }

    /// A session is over.
    pub(crate) fn keep_session(&mut self, index: usize) {
        if let Some(session) = self.processes[index].session.take() {
            self.keep(&session);
        }
    }

    fn keep<M: Recordable>(&mut self, machine: &RecordedMachine<M>) {
        // As a rule nothing is recorded.
        self.recordings.extend(machine.recording(self.cause.clone(), 0));
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::limits::ReelLimits;
    use weightcast_protocol::recording::MachineKind;
    use weightcast_protocol::server::{Server, Snapshot};
    use weightcast_protocol::{CallDurations, Span, Time};

    use super::*;
    use crate::report::retelling::{RetoldEnd, retell};
    use crate::settings::harshness::Harshness;

    /// Reels of every size: from images after a few events each to one reel for a whole life.
    fn world(seed: u64) -> World {
        let bytes = [300, 3_000, 30_000, usize::MAX][seed as usize % 4];
        let mut options = Harshness::default().options(seed);
        options.recorders = Some(ReelLimits { bytes, span: Span::from_secs(3_600) });
        World::new(seed, options)
    }

    #[test]
    fn what_was_recorded_is_played_back_output_for_output() {
        let (mut servers, mut sessions, mut later_images) = (0, 0, 0);
        for seed in 0..200 {
            for recording in world(seed).record() {
                let read = Recording::decode(&recording.encode()).expect("what was written");
                let (_, end) = retell(&read).expect("the build is the same");
                assert_eq!(end, RetoldEnd::Faithful, "seed {seed}, {:?}", read.head);
                match read.head.kind {
                    MachineKind::Server => servers += 1,
                    MachineKind::Session => sessions += 1,
                }
                later_images += usize::from(seed % 4 == 0);
            }
        }
        assert!(servers > 300 && sessions > 3_000, "{servers} servers, {sessions} sessions");
        assert!(later_images > 500, "{later_images}");
    }

    /// All that is shown of a server, but for the figures that recordings leave out.
    fn known(server: &Server, now: Time) -> Snapshot {
        let mut snapshot = server.snapshot(now);
        snapshot.durations = CallDurations::default();
        for model in snapshot.models.values_mut() {
            model.latest_for = None;
            let staleness = model.replicas.iter_mut().filter_map(|r| r.staleness.as_mut());
            staleness.for_each(|staleness| staleness.stale = Span(0));
        }
        snapshot
    }

    #[test]
    fn a_server_that_is_played_back_knows_in_the_end_what_it_knew() {
        for seed in 0..40 {
            let mut world = world(seed);
            world.play(|_| false);
            for host in 0..world.hosts.len() {
                let Some(server) = &world.hosts[host].server else { continue };
                let expected = known(server, world.now);
                let Ok(recording) = server.recording(RecordingCause::Asked, 0) else { continue };
                let mut playback = recording.play::<Server>().expect("the build is the same");
                while let Some(event) = playback.next().expect("events can be read") {
                    playback.play(event);
                }
                assert_eq!(
                    known(playback.machine(), world.now),
                    expected,
                    "seed {seed}, server {host}"
                );
            }
        }
    }
}
