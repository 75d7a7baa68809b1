//! Worlds as most tests want them: a trainer that has published, and a reader that has registered.

use weightcast_protocol::Span;
use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_transport::Way;

use super::worker::{ClientKind, Form, good};
use super::world::RigWorld;

pub(super) const TRAINER: usize = 0;
pub(super) const READER: usize = 1;
/// Longer than anything takes.
pub(super) const LONG: Span = Span::from_secs(20);

/// Runs a test where one thread does all that blocks.
pub(super) fn run<T>(test: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build().expect("a runtime");
    runtime.block_on(test)
}

pub(super) fn form(bytes: u64) -> Form {
    Form { turned: false, bytes, shard: 0, shards: 1 }
}

pub(super) fn kind(role: Role, form: Form, way: Way) -> ClientKind {
    ClientKind {
        name: None,
        datacentre: String::new(),
        retain: 0,
        seeding: false,
        room: None,
        role,
        form,
        way,
        relays: false,
        plans: None,
        port: None,
    }
}

impl RigWorld {
    /// Of a trainer that has published version 1, and a reader that reads it next.
    pub(super) async fn with_reader(bytes: u64, reader: ClientKind) -> Self {
        let mut world = Self::new(1);
        assert_eq!(world.join(kind(Role::Trainer, form(bytes), Way::Auto)), TRAINER);
        assert_eq!(world.join(reader), READER);
        for worker in [TRAINER, READER] {
            world.register(worker).await;
        }
        world.publish(TRAINER, 1).await;
        world
    }

    /// Registers fresh memory.
    pub(super) async fn register(&mut self, worker: usize) {
        let now = self.now;
        self.acting(worker, "register", |worker| worker.register(now));
        self.registered(worker).await;
    }

    /// The call that registers is answered, and the memory is what is served.
    pub(super) async fn registered(&mut self, worker: usize) {
        let Some((Call::Register { export, .. }, _)) = &self.workers[worker].pending else {
            panic!("it is called")
        };
        let export = *export;
        let reply = self.answer(worker).await;
        assert!(matches!(good(reply), Answer::Registered { .. }));
        self.acting(worker, "registered", |worker| worker.registered(export));
    }

    /// Writes a version and publishes it, until it is sealed.
    pub(super) async fn publish(&mut self, worker: usize, version: u64) {
        let now = self.now;
        self.workers[worker].write(version);
        self.acting(worker, "publish", |worker| worker.publish(now, version));
        let reply = self.answer(worker).await;
        assert!(matches!(good(reply), Answer::Published { .. }));
        self.settle().await;
    }

    /// Makes a call and waits for its answer.
    pub(super) async fn ask(&mut self, worker: usize, call: Call) -> Answer {
        self.begin(worker, call, LONG);
        good(self.answer(worker).await)
    }

    pub(super) fn begin(&mut self, worker: usize, call: Call, deadline: Span) {
        let now = self.now;
        self.acting(worker, "call", |worker| worker.call(now, call, deadline));
    }

    /// Begins to read the newest version.
    pub(super) fn read(&mut self, worker: usize, staged: bool, deadline: Span) {
        let now = self.now;
        self.acting(worker, "update", |worker| worker.update(now, staged, deadline));
    }

    /// The reader holds version 1, and version 2 is there.
    pub(super) async fn second_version(&mut self) {
        self.read(READER, false, LONG);
        assert!(matches!(good(self.answer(READER).await), Answer::Committed { .. }));
        assert_eq!(self.ask(TRAINER, Call::Unpublish).await, Answer::Unpublished);
        self.workers[TRAINER].let_go(0xdd);
        self.publish(TRAINER, 2).await;
    }

    /// Nothing may go on: what came is as it was left.
    pub(super) async fn look(&mut self) {
        self.settle().await;
        self.workers.iter().for_each(|worker| worker.check("all"));
    }
}
