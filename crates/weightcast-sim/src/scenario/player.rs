//! Plays a setting: a queue of events, the server, the workers, the bytes.

use std::collections::BTreeMap;

use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{Span, Time};

use super::check::ScenarioError;
use super::cluster::Topology;
use super::event::{Happening, ScenarioEvent};
use super::flows::Flows;
use super::outcome::Outcome;
use super::setting::Setting;
use super::worker::{Worker, WorkerLife, seconds, unit_bytes};

/// After the last step of the script, everything must end within this time.
const PATIENCE: Span = Span::from_secs(1_000);

/// The state of a play.
pub(super) struct Player<'a> {
    pub(super) setting: &'a Setting,
    pub(super) cluster: Topology,
    pub(super) now: Time,
    events: BTreeMap<(Time, u64), ScenarioEvent>,
    planned: u64,
    pub(super) streams: u64,
    pub(super) server: Server,
    pub(super) server_timer: Option<Time>,
    pub(super) workers: Vec<Worker>,
    pub(super) flows: Flows,
    /// Bytes of a shard.
    pub(super) shard_bytes: u64,
    /// Bytes of one unit of a shard.
    pub(super) unit: u64,
    /// Tasks that have not ended.
    pub(super) waiting: usize,
    steps_left: usize,
    pub(super) outcome: Outcome,
}

impl<'a> Player<'a> {
    pub(super) fn new(setting: &'a Setting) -> Self {
        let cluster = Topology::new(setting);
        let mut workers = Vec::new();
        workers.resize_with(cluster.places.len(), Worker::default);
        let shard_bytes = (setting.shard_gb * 1e9) as u64;
        let protocol = &setting.protocol;
        let config = ServerConfig {
            lease: seconds(protocol.lease_s),
            fanout: protocol.fanout,
            host_fanout: protocol.host_fanout,
            depth_limit: protocol.depth_limit,
            ..ServerConfig::default()
        };
        let mut player = Self {
            setting,
            flows: Flows::new(cluster.links.clone(), workers.len()),
            cluster,
            now: Time(0),
            events: BTreeMap::new(),
            planned: 0,
            streams: 0,
            server: Server::new(config),
            server_timer: None,
            workers,
            shard_bytes,
            unit: unit_bytes(shard_bytes),
            waiting: 0,
            steps_left: setting.script.len(),
            outcome: Outcome::default(),
        };
        player.plan_script();
        player
    }

    pub(super) fn play(mut self, case: &str) -> Result<Outcome, ScenarioError> {
        let last = self.setting.script.iter().map(|step| step.at_s).fold(0.0, f64::max);
        let end = Time(0) + seconds(last) + PATIENCE;
        while self.steps_left > 0 || self.waiting > 0 {
            let Some(((at, _), event)) = self.events.pop_first().filter(|((at, _), _)| *at <= end)
            else {
                return Err(self.unfinished(case));
            };
            self.now = at;
            self.outcome.events += 1;
            self.happen(event);
        }
        self.outcome.links = self.flows.links.iter().map(Into::into).collect();
        self.outcome.counters = self.server.snapshot(self.now).counters;
        self.outcome.play_s = self.now.0 as f64 / 1e9;
        Ok(self.outcome)
    }

    fn unfinished(&self, case: &str) -> ScenarioError {
        let who = self.workers.iter().position(|worker| worker.tasks() > 0);
        let example = who.map_or("none of a worker that lives".to_owned(), |index| {
            let place = &self.cluster.places[index];
            let what = self.workers[index].running.as_ref().map(|running| running.task.what);
            format!("{} {} shard {}: {what:?}", place.group, place.replica, place.shard)
        });
        let (case, waiting) = (case.to_owned(), self.waiting);
        ScenarioError::Unfinished { case, at_s: self.now.0 as f64 / 1e9, waiting, example }
    }

    pub(super) fn plan(&mut self, at: Time, event: ScenarioEvent) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    fn happen(&mut self, event: ScenarioEvent) {
        match event {
            ScenarioEvent::ToServer(stream, message) => {
                self.server.handle(self.now, stream, message);
                self.serve();
            }
            ScenarioEvent::ServerGone(stream) => {
                self.server.handle_disconnect(self.now, stream);
                self.serve();
            }
            ScenarioEvent::ServerTimer => {
                self.server_timer = None;
                self.server.handle_timeout(self.now);
                self.serve();
            }
            ScenarioEvent::Script(step) => {
                self.steps_left -= 1;
                self.step(step);
            }
            ScenarioEvent::Start(worker) => self.start(worker),
            ScenarioEvent::End(end) => {
                self.flow_reached(end);
                self.obey_session(end.reader);
            }
            ScenarioEvent::Worker(life, happening) => self.happen_to(life, happening),
        }
        for end in std::mem::take(&mut self.flows.ends) {
            self.plan(end.at, ScenarioEvent::End(end));
        }
    }

    fn happen_to(&mut self, life: WorkerLife, happening: Happening) {
        let WorkerLife { worker: index, life } = life;
        let worker = &mut self.workers[index];
        if worker.life != life {
            // The task died with the worker's life.
            self.waiting -= usize::from(matches!(happening, Happening::Task(_)));
            return;
        }
        let now = self.now;
        match happening {
            Happening::Told(seq, attempt, units) => self.told(index, seq, attempt, units),
            Happening::Lost(seq, attempt, reason) => self.lost(index, seq, attempt, reason),
            Happening::Task(task) => {
                worker.todo.push_back(task);
                self.next_task(index);
            }
            happening => {
                let sums = self.sums_of_published(index);
                let worker = &mut self.workers[index];
                let Some(session) = &mut worker.session else { return };
                match happening {
                    Happening::Connected(stream) => {
                        worker.host.stream = Some(stream);
                        session.handle_connected(now);
                    }
                    Happening::Message(stream, message) if worker.host.stream == Some(stream) => {
                        session.handle_message(now, message);
                    }
                    Happening::Gone(stream) if worker.host.stream == Some(stream) => {
                        worker.host.stream = None;
                        session.handle_disconnected(now);
                    }
                    Happening::Timer => {
                        worker.timer_at = None;
                        session.handle_timeout(now);
                    }
                    Happening::Sealed(generation) => {
                        worker.host.sealing.take_if(|sealing| *sealing == generation);
                        session.handle_sealed(now, generation, sums);
                    }
                    _ => {}
                }
            }
        }
        self.obey_session(index);
    }

    pub(super) fn control(&self) -> Span {
        seconds(self.setting.latency.control_ms / 1e3)
    }

    pub(super) fn life(&self, worker: usize) -> WorkerLife {
        WorkerLife { worker, life: self.workers[worker].life }
    }

    pub(super) fn plan_for(&mut self, worker: usize, after: Span, happening: Happening) {
        self.plan(self.now + after, ScenarioEvent::Worker(self.life(worker), happening));
    }
}
