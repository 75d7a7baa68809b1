//! Random runs of groups with one or two servers: shards go on by themselves, streams break, servers die
//! and come back, clients are replaced. All that [`super::checks`] asks for holds after each event, and
//! what one shard is told all are.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{Selector, Span};
use weightcast_transport::Way;

use super::groups::update;
use super::net::lock;
use super::scene::{LONG, form, kind, run};
use super::worker::ClientKind;
use super::world::RigWorld;

/// Things that runs came to.
#[derive(Clone, Copy, Debug, Default)]
struct GroupSights {
    commits: u64,
    failed: u64,
    unpublished: u64,
    deaths: u64,
    cuts: u64,
    anew: u64,
}

/// A group and what it does now.
struct RigGroup {
    role: Role,
    shards: Vec<usize>,
    /// Of each shard: the call is to be made, or it has been answered so.
    course: Vec<GroupCourse>,
    call: Option<(Call, Span)>,
}

#[derive(Clone, Debug, PartialEq)]
enum GroupCourse {
    ToBegin,
    Pending,
    Answered(Option<Answer>),
}

struct GroupRun {
    world: RigWorld,
    groups: Vec<RigGroup>,
    sights: GroupSights,
    version: u64,
    servers: usize,
}

impl GroupRun {
    fn new(seed: u64) -> Self {
        let servers = 1 + (seed % 2) as usize;
        let mut world = RigWorld::with_servers(seed, servers);
        let mut groups = Vec::new();
        for role in [Role::Trainer, Role::Rollout, Role::Rollout] {
            let shards = 1 + world.draw.below(2) as u32;
            let shards = world.join_group(shards, || client(role));
            let course = vec![GroupCourse::ToBegin; shards.len()];
            groups.push(RigGroup { role, shards, course, call: None });
        }
        world.delay = Span::from_millis(1 + world.draw.below(60));
        Self { world, groups, sights: GroupSights::default(), version: 0, servers }
    }

    async fn go(mut self, events: u64) -> (GroupSights, u64) {
        for _ in 0..100 * events {
            if self.world.happened >= events {
                break;
            }
            self.world.one().await;
            self.fault();
            for group in 0..self.groups.len() {
                self.program(group);
            }
        }
        assert!(self.world.happened >= events, "nothing happens any more");
        self.world.look().await;
        (self.sights, self.world.trace)
    }

    fn fault(&mut self) {
        let worker = self.world.draw.below(self.world.workers.len() as u64) as usize;
        let server = self.world.draw.below(self.servers as u64) as usize;
        let drawn = self.world.draw.below(800);
        let mut net = lock(&self.world.net);
        match drawn {
            0..5 => {
                self.sights.cuts += 1;
                drop(net);
                self.world.cut(worker);
            }
            5 => net.unreachable.push(worker),
            6 if self.servers > 1 => net.part(worker, server),
            7..9 if net.servers[server].is_some() => {
                self.sights.deaths += 1;
                net.die(server);
            }
            9..40 if net.servers[server].is_none() => net.revive(server),
            40..55 => {
                net.unreachable.clear();
                net.parted.clear();
            }
            _ => {}
        }
    }

    /// Each shard makes the group's call when it likes; once all have their answer there is another.
    fn program(&mut self, group: usize) {
        for place in 0..self.groups[group].shards.len() {
            let shard = self.groups[group].shards[place];
            match self.groups[group].course[place] {
                GroupCourse::ToBegin if self.world.draw.once_in(3) => self.begin(group, place),
                GroupCourse::Pending => {
                    if let Some(reply) = self.world.workers[shard].answered() {
                        let answer = reply.ok().map(|(answer, _)| answer);
                        self.sights.failed += u64::from(answer.is_none());
                        self.answered(group, place, answer);
                    }
                }
                _ => {}
            }
        }
        let group = &mut self.groups[group];
        if group.course.iter().all(|course| matches!(course, GroupCourse::Answered(_))) {
            let first = group.course[0].clone();
            let alike = group.course.iter().all(|course| *course == first);
            let shards = group.shards.clone();
            group.course.fill(GroupCourse::ToBegin);
            group.call = None;
            let over = |shard: &usize| {
                self.world.workers[*shard].control.session.state() == SessionState::Ended
            };
            if !alike || shards.iter().any(over) {
                self.anew(&shards);
            }
        }
    }

    /// A call ended differently on its shards, or one of them is over: the job starts the group again.
    fn anew(&mut self, shards: &[usize]) {
        self.sights.anew += 1;
        for shard in shards {
            let role = self.groups.iter().find(|group| group.shards.contains(shard));
            let role = role.expect("of a group").role;
            let old = self.world.workers[*shard].form;
            let fresh = client(role);
            self.world.replace(*shard, ClientKind { form: old, ..fresh });
        }
    }

    fn begin(&mut self, group: usize, place: usize) {
        let shard = self.groups[group].shards[place];
        let now = self.world.now;
        self.groups[group].course[place] = GroupCourse::Pending;
        if self.groups[group].call.is_none() {
            self.groups[group].call = Some(self.draw_call(group));
        }
        let (call, deadline) = self.groups[group].call.clone().expect("just drawn");
        match call {
            Call::Register { .. } => {
                self.world.acting(shard, "register", |worker| worker.register(now));
            }
            Call::Publish { version, .. } => {
                self.world.workers[shard].write(version);
                self.world.acting(shard, "publish", |worker| worker.publish(now, version));
            }
            call => {
                if matches!(call, Call::Update { .. } | Call::Replicate { .. }) {
                    self.world.workers[shard].take_back();
                }
                self.world.begin(shard, call, deadline);
            }
        }
    }

    fn draw_call(&mut self, group: usize) -> (Call, Span) {
        let RigGroup { role, shards, .. } = &self.groups[group];
        let of = |shard: &usize| &self.world.workers[*shard].control;
        let registered = shards.iter().all(|shard| of(shard).shared.current().is_some());
        let holds = shards.iter().any(|shard| of(shard).session.version().is_some());
        let trains = *role == Role::Trainer;
        let draw = &mut self.world.draw;
        let deadline = Span::from_millis(500 + draw.below(12_000));
        if !registered {
            let (layout, export) = Default::default();
            return (Call::Register { layout, export, bytes: 0 }, LONG);
        }
        let call = match draw.below(10) {
            0..2 if holds => Call::Unpublish,
            2 => Call::List,
            3 if !trains => Call::Replicate { selector: Selector::Latest },
            _ if !trains => update(draw.once_in(2)),
            _ if holds => Call::Unpublish,
            _ => {
                self.version += 1;
                let (catalog, generation) = Default::default();
                Call::Publish { version: self.version, catalog, generation }
            }
        };
        (call, deadline)
    }

    fn answered(&mut self, group: usize, place: usize, answer: Option<Answer>) {
        let shard = self.groups[group].shards[place];
        let (call, _) = self.groups[group].call.clone().expect("it was made");
        match (&call, &answer) {
            (Call::Register { .. }, Some(_)) => {
                let export = self.world.workers[shard].export;
                self.world.acting(shard, "registered", |worker| worker.registered(export));
            }
            (Call::Unpublish, Some(_)) => {
                self.sights.unpublished += 1;
                self.let_go(shard);
            }
            (Call::Update { .. } | Call::Replicate { .. }, Some(Answer::Committed { .. })) => {
                self.sights.commits += 1;
            }
            _ => {}
        }
        let held = self.world.workers[shard].control.session.version();
        if held.is_none() && answer.is_none() {
            self.let_go(shard);
        }
        // What differs from shard to shard in a good answer is nothing that they act on.
        let answer = answer.map(|answer| match answer {
            Answer::Listed(_) => Answer::Unpublished,
            answer => answer,
        });
        self.groups[group].course[place] = GroupCourse::Answered(answer);
    }

    fn let_go(&mut self, shard: usize) {
        let mark = self.world.draw.next() as u8;
        self.world.workers[shard].let_go(mark);
    }
}

/// No relays: who reads from one waits for it, and one thread does all reads.
fn client(role: Role) -> ClientKind {
    kind(role, form(9_000), Way::Direct)
}

const SEEDS: u64 = 60;

#[test]
fn random_groups_hold_after_each_event() {
    let mut seen = GroupSights::default();
    for seed in 0..SEEDS {
        let course = || run(async { GroupRun::new(seed).go(700).await });
        let shown = std::panic::AssertUnwindSafe(course);
        let (sights, _) = std::panic::catch_unwind(shown).unwrap_or_else(|panic| {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(panic)
        });
        seen.commits += sights.commits;
        seen.failed += sights.failed;
        seen.unpublished += sights.unpublished;
        seen.deaths += sights.deaths;
        seen.cuts += sights.cuts;
        seen.anew += sights.anew;
    }
    eprintln!("{seen:?}");
    for (what, times) in [
        ("commits", seen.commits),
        ("failed calls", seen.failed),
        ("unpublish", seen.unpublished),
        ("dead servers", seen.deaths),
        ("cuts", seen.cuts),
        ("groups that are started again", seen.anew),
    ] {
        assert!(times >= SEEDS / 10, "{what}: {times} in {SEEDS} runs");
    }
}
