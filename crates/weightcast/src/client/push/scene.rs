//! Processes of a push for tests: each with its memory, its data port and the layouts of all, without a server.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use tokio::sync::oneshot;
use weightcast_plan::{DType, Layout, LayoutBuilder, Part};
use weightcast_protocol::push::{PushCommand, PushNumber, PushOrder, SenderId, TargetId};
use weightcast_protocol::{ContentDigest, Span};
use weightcast_transport::{ExportId, Region};

use super::desk::DriverWord;
use super::plans::PushPlan;
use super::samples::VERSION;
use super::word::{OrderWord, PushWord};
use crate::client::connection::tests::{FakePort, to};
use crate::client::handle_state::HandleState;
use crate::client::memory::registration::RegisteredShard;
use crate::client::push::{hearing, sender};
use crate::config::Replica;

pub(super) const LONG: Duration = Duration::from_secs(20);
/// Of the one tensor. Each of the two senders holds one half, the target all: so its plan has two parcels.
pub(super) const BYTES: u64 = 16;
/// The layouts of the senders, by shard, and the target's.
pub(super) const BASE: [ContentDigest; 2] = [ContentDigest([1; 16]), ContentDigest([2; 16])];
pub(super) const WHOLE: ContentDigest = ContentDigest([9; 16]);
pub(super) const TARGET: TargetId = TargetId(50);
pub(super) const SENDERS: [SenderId; 2] = [SenderId(60), SenderId(61)];

/// A process with registered memory, which hears words.
pub(super) struct PushScene {
    pub(super) state: Arc<HandleState>,
    pub(super) region: Region,
    /// Its runtime ends with this.
    _runs: oneshot::Sender<()>,
}

fn part(index: u64, of: u64) -> Arc<Layout> {
    let mut builder = LayoutBuilder::new();
    let part = Part::new("w").shape([BYTES]).dim(0, index, of);
    builder.add("w", DType::U8, &[BYTES / of], vec![part], 0);
    Arc::new(builder.build().unwrap())
}

pub(super) fn base() -> Vec<Arc<Layout>> {
    (0..2).map(|index| part(index, 2)).collect()
}

pub(super) fn whole() -> Arc<Layout> {
    part(0, 1)
}

/// What is pushed: no byte of it is zero.
pub(super) fn content() -> Vec<u8> {
    (1..=BYTES as u8).collect()
}

impl PushScene {
    /// The target, whose memory is zero.
    pub(super) fn target() -> Self {
        Self::new(
            FakePort::default(),
            "rollout",
            &[whole()],
            0,
            ExportId(TARGET.0),
            vec![WHOLE],
            vec![0; BYTES as usize],
        )
    }

    /// A sender that holds the version.
    pub(super) fn sender(shard: usize) -> Self {
        Self::sender_of(shard, FakePort::default())
    }

    /// The same, of a server that says this.
    pub(super) fn sender_of(shard: usize, port: FakePort) -> Self {
        let half = content()[shard * 8..][..8].to_vec();
        let scene = Self::new(
            port,
            "trainer",
            &base(),
            shard,
            ExportId(SENDERS[shard].0),
            BASE.to_vec(),
            half,
        );
        scene.holds(Some(VERSION));
        scene
    }

    fn new(
        port: FakePort,
        name: &str,
        layouts: &[Arc<Layout>],
        shard: usize,
        export: ExportId,
        names: Vec<ContentDigest>,
        bytes: Vec<u8>,
    ) -> Self {
        let region = Region::from_bytes(&bytes).unwrap();
        let registered = RegisteredShard::new(layouts, shard, vec![region.clone()]).unwrap();
        let mut state = HandleState::alone(Some((Arc::new(registered), export)), None);
        let own = Arc::get_mut(&mut state).expect("nobody else has it yet");
        own.push.address = own.exports.addr().to_string();
        own.label.replica = Replica::new(name, shard as u32, layouts.len() as u32);
        state.push.registered(names);
        for (name, layout) in BASE.iter().zip(base()).chain([(&WHOLE, whole())]) {
            state.layouts.lock().unwrap().keep(*name, &layout);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        state.push.connect(to([port]), runtime.handle().clone());
        let (runs, ends) = oneshot::channel::<()>();
        std::thread::spawn(move || runtime.block_on(ends));
        hearing::listen(&state);
        Self { state, region, _runs: runs }
    }

    pub(super) fn holds(&self, version: Option<weightcast_protocol::Version>) {
        self.state.view.lock().unwrap().held = version;
        version.into_iter().for_each(|version| sender::hold(&self.state, version));
    }

    pub(super) fn address(&self) -> String {
        self.state.push.address.clone()
    }

    /// The plan of the push, with its two parcels.
    pub(super) fn plan(&self) -> Arc<PushPlan> {
        let of = (vec![WHOLE], 0, BASE.to_vec());
        self.state.push.plans.get(of, &[whole()], &base()).unwrap()
    }

    /// An order of a driver that hears here, to fill the target: each sender writes its half.
    pub(super) fn order(&self, push: PushNumber, revision: u64) -> OrderWord {
        let routes = [(0, SENDERS[0]), (1, SENDERS[1])].into();
        let order = PushOrder {
            push,
            target: TARGET,
            revision,
            version: VERSION,
            command: PushCommand::Fill { routes },
            lease: Span(u64::MAX / 4),
        };
        let (driver, parcels) = (self.address(), self.plan().fingerprint);
        OrderWord { order, driver, base: BASE.to_vec(), parcels }
    }
}

/// The next word that a driver hears.
#[track_caller]
pub(super) fn heard(words: &Receiver<DriverWord>) -> PushWord {
    match words.recv_timeout(LONG) {
        Ok(DriverWord::Said(word)) => *word,
        other => panic!("{other:?}"),
    }
}
