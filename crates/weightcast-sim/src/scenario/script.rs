//! What workers do: steps of the script become tasks of shards, and tasks become calls.

use weightcast_protocol::message::{Answer, Call, EpochPolicy, Open, Role};
use weightcast_protocol::session::{Session, SessionConfig};
use weightcast_protocol::{
    CallError, ContentDigest, ExportId, Generation, PROTOCOL, Selector, SessionId, Span, Time,
};
use weightcast_testkit::mix;

use super::event::{Happening, ScenarioEvent};
use super::outcome::Stall;
use super::player::Player;
use super::setting::{GroupRole, GroupSetting, Verb};
use super::worker::{Running, Task, TaskKind, seconds};

/// The first trainer has opened a new run by then; all other workers start at this time.
const OPENED: Time = Time(100_000_000);

/// Deadline of every call. No call of a scenario takes this long.
const DEADLINE: Span = Span::from_secs(900);

/// How long a worker waits before it makes a failed call again.
const AGAIN: Span = Span::from_millis(100);

impl Player<'_> {
    /// Plans the steps, and the start of all workers that are there from the beginning.
    pub(super) fn plan_script(&mut self) {
        for (index, step) in self.setting.script.iter().enumerate() {
            self.plan(Time(0) + seconds(step.at_s), ScenarioEvent::Script(index));
        }
        for index in 0..self.workers.len() {
            let place = &self.cluster.places[index];
            let waits = place.seeds_for.is_some() || self.setting.groups[&place.group].joins_later;
            if !waits {
                let at = if self.begins_run(index) { Time(0) } else { OPENED };
                self.waiting += 1;
                self.plan(at, ScenarioEvent::Start(index));
            }
        }
    }

    /// Whether a worker belongs to the first trainer replica, which begins the run.
    fn begins_run(&self, index: usize) -> bool {
        let place = &self.cluster.places[index];
        let trains = |(_, group): &(&String, &GroupSetting)| group.role == GroupRole::Trainer;
        let first = self.setting.groups.iter().find(trains).map(|(name, _)| name);
        place.replica == 0 && first == Some(&place.group)
    }

    /// A process starts and registers its memory.
    pub(super) fn start(&mut self, index: usize) {
        let place = &self.cluster.places[index];
        let group = &self.setting.groups[&place.group];
        let open = Open {
            role: match group.role {
                GroupRole::Trainer => Role::Trainer,
                GroupRole::Rollout => Role::Rollout,
            },
            epoch: if self.begins_run(index) { EpochPolicy::New } else { EpochPolicy::Current },
            offload_seeding: group.offload_seeding,
            ..self.open(index, self.replica(index))
        };
        self.live(index, open);
    }

    /// The name of a worker's replica.
    pub(super) fn replica(&self, index: usize) -> String {
        let place = &self.cluster.places[index];
        format!("{}-{}", place.group, place.replica)
    }

    fn name(&self, index: usize, salt: u64) -> u64 {
        mix(&[index as u64, self.workers[index].life.into(), salt])
    }

    /// The `Open` of a process at a worker's place.
    pub(super) fn open(&self, index: usize, replica: String) -> Open {
        let place = &self.cluster.places[index];
        Open {
            protocol: PROTOCOL,
            session: SessionId(self.name(index, 1).into()),
            ticket: None,
            rejoins: false,
            model: "policy".to_owned(),
            replica,
            shard: place.shard,
            num_shards: self.setting.shards,
            role: Role::Rollout,
            epoch: EpochPolicy::Current,
            retain: 0,
            offload_seeding: false,
            location: place.location.clone(),
            data_address: index.to_string(),
            activate: false,
        }
    }

    /// A life begins: its session opens, and it registers its memory.
    pub(super) fn live(&mut self, index: usize, open: Open) {
        let mut config = SessionConfig::new(open, "server");
        config.reconnect = Span(0);
        config.relays = self.setting.protocol.relays;
        let export = ExportId(self.name(index, 2));
        let worker = &mut self.workers[index];
        worker.export = export;
        worker.session = Some(Session::new(config, self.now));
        worker.todo.push_front(Task::new(TaskKind::Register, false));
        self.next_task(index);
        self.obey_session(index);
    }

    /// A step of the script is due.
    pub(super) fn step(&mut self, step: usize) {
        let step = &self.setting.script[step];
        let chosen = |replica: u32| step.replicas.as_ref().is_none_or(|r| r.contains(&replica));
        let workers: Vec<(usize, u32)> = (0..self.workers.len())
            .map(|index| (index, &self.cluster.places[index]))
            .filter(|(_, place)| place.seeds_for.is_none())
            .filter(|(_, place)| place.group == step.group && chosen(place.replica))
            .map(|(index, place)| (index, place.replica))
            .collect();
        for (index, replica) in workers {
            if step.verb == Verb::Kill {
                self.kill(index);
                continue;
            }
            let later = seconds(step.spread_s * f64::from(replica));
            if step.verb == Verb::Join && self.workers[index].session.is_none() {
                self.waiting += 1;
                self.plan(self.now + later, ScenarioEvent::Start(index));
            }
            let what = TaskKind::of(step.verb, step.version, step.every_s).expect("it is a call");
            self.waiting += 1;
            self.plan_for(index, later, Happening::Task(Task::new(what, !step.warm_up)));
        }
    }

    /// A process and its host vanish without a message.
    fn kill(&mut self, index: usize) {
        if self.workers[index].session.is_none() {
            return;
        }
        if let Some(stream) = self.workers[index].host.stream.take() {
            self.plan(self.now + self.control(), ScenarioEvent::ServerGone(stream));
        }
        self.end_life(index);
        self.seed_of(index).into_iter().for_each(|seed| self.end_life(seed));
    }

    /// Ends a worker's life: nothing of it is left, and its readers notice its silence.
    pub(super) fn end_life(&mut self, index: usize) {
        self.stop_read(index);
        self.waiting -= self.workers[index].tasks();
        let worker = &mut self.workers[index];
        let life = worker.life + 1;
        *worker = Default::default();
        worker.life = life;
        self.readers_lose(index, seconds(self.setting.latency.silence_s), "it does not answer");
    }

    /// Makes the call of the next task, unless a call still runs.
    pub(super) fn next_task(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        let Some(session) = worker.session.as_mut().filter(|_| worker.running.is_none()) else {
            return;
        };
        let Some(mut task) = worker.todo.pop_front() else { return };
        let holds = session.version().is_some();
        let clears = holds && matches!(task.what, TaskKind::Publish(_));
        let call = match task.what {
            TaskKind::Publish(_) if clears => Call::Unpublish,
            TaskKind::Publish(version) => {
                let catalog = ContentDigest([1; 16]);
                Call::Publish { version, catalog, generation: Generation(0) }
            }
            TaskKind::Register => {
                // All groups have the same layouts, shard by shard.
                let shard = self.cluster.places[index].shard.to_le_bytes();
                let mut layout = [2; 16];
                layout[..4].copy_from_slice(&shard);
                let (layout, bytes) = (ContentDigest(layout), self.shard_bytes);
                Call::Register { layout, export: worker.export, bytes }
            }
            TaskKind::Unpublish => Call::Unpublish,
            TaskKind::Replicate => Call::Replicate { selector: Selector::Latest },
            TaskKind::Update { .. } => {
                Call::Update { selector: Selector::Latest, allow_rollback: false, staged: false }
            }
        };
        task.began.get_or_insert(self.now);
        match session.call(self.now, call, DEADLINE) {
            Ok(_) => worker.running = Some(Running { task, since: self.now, clears }),
            Err(error) => {
                self.outcome.failed(format!("a call was refused: {error}"));
                self.waiting -= 1;
            }
        }
    }

    /// A call has ended.
    pub(super) fn done(&mut self, index: usize, result: Result<Answer, CallError>) {
        let Some(Running { mut task, since, clears }) = self.workers[index].running.take() else {
            return;
        };
        if self.seed_ended(index, &result) {
            return;
        }
        task.stalled.0 += (self.now - since).0;
        let again = match (task.what, &result) {
            (_, Err(error)) => {
                self.outcome.failed(format!("{:?}: {error}", task.what));
                Some(AGAIN)
            }
            (TaskKind::Update { version, every }, Ok(_)) => {
                let held = self.workers[index].session.as_ref().and_then(|s| s.version());
                (held.is_none_or(|held| held.number < version)).then_some(every)
            }
            _ => clears.then_some(Span(0)),
        };
        match again {
            Some(after) => self.plan_for(index, after, Happening::Task(task)),
            None => {
                self.waiting -= 1;
                self.task_ended(index, &task);
            }
        }
        self.next_task(index);
    }

    fn task_ended(&mut self, index: usize, task: &Task) {
        let place = &self.cluster.places[index];
        let stall_s = task.stalled.0 as f64 / 1e9;
        if !task.measured {
            return;
        }
        if matches!(task.what, TaskKind::Publish(_) | TaskKind::Unpublish) {
            self.outcome.publishing_s += stall_s;
            return;
        }
        let session = self.workers[index].session.as_ref();
        self.outcome.stalls.push(Stall {
            group: place.group.clone(),
            replica: place.replica,
            shard: place.shard,
            version: session.and_then(|s| s.version()).map_or(0, |version| version.number),
            began_s: task.began.map_or(0.0, |began| began.0 as f64 / 1e9),
            stall_s,
            ended_s: self.now.0 as f64 / 1e9,
        });
    }
}
