//! What a handle asks of its control thread, and what it makes of the answers. The tests play the
//! control thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use weightcast_plan::{DType, Layout, LayoutBuilder, Part, Slice};
use weightcast_protocol::{Epoch, Generation, Span};
use weightcast_transport::{ExportId, Region};

use super::*;
use crate::client::connection::tests::{FakePort, Said, to};
use crate::client::memory::registration::RegisteredShard;
use crate::client::memory::reservations::ReservedMemory;
use crate::client::mismatch::locate::Cause;
use crate::client::reading::pace::LatestRead;

mod calls;
mod explained;

pub(in crate::client) const LONG: Duration = Duration::from_secs(20);
/// Of the registered tensor `w`.
const BYTES: u64 = 64;

/// What the thread was asked.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::client) enum HeardCall {
    Call(Call, Span),
    Close(Span),
    /// Of a model.
    Fleet(String, FleetQuestion, Duration),
    Routing(String, RoutingQuestion, Duration),
}

/// Where an answer goes to.
type Waiter = reply::Sender<Result<(), FailedCall>>;

/// A handle of shard 0 of a group, with a control thread that gives prescribed answers.
pub(in crate::client) struct HandleScene {
    pub(in crate::client) handle: ShardHandle,
    heard: Arc<Mutex<Vec<HeardCall>>>,
    /// Waits for the seal that have no answer yet.
    waits: Arc<Mutex<Vec<Waiter>>>,
    /// Requests to the server beside the session.
    pub(in crate::client) requests: Arc<std::sync::atomic::AtomicUsize>,
    /// Raised for a thread that does not end when it is told to.
    stuck: Arc<std::sync::atomic::AtomicBool>,
}

/// Another handle of this process.
pub(in crate::client) fn somebody() -> Registrant {
    Registrant::new("policy", &Replica::new("somebody", 0, 1))
}

impl HandleScene {
    /// `said` is what the server answers beside the session.
    pub(in crate::client) fn new(
        shards: u32,
        said: Vec<Said>,
        answers: impl FnMut(&Call) -> Result<Answer, CallError> + Send + 'static,
    ) -> Self {
        Self::with_room(None, shards, said, answers)
    }

    /// A scene whose staged updates may take so many bytes.
    fn with_room(
        staging_bytes: Option<u64>,
        shards: u32,
        said: Vec<Said>,
        answers: impl FnMut(&Call) -> Result<Answer, CallError> + Send + 'static,
    ) -> Self {
        Self::made(true, staging_bytes, shards, said, answers)
    }

    /// A scene; `fills` is whether its memory may be filled at any time, unlike a trainer's.
    pub(in crate::client) fn made(
        fills: bool,
        staging_bytes: Option<u64>,
        shards: u32,
        said: Vec<Said>,
        mut answers: impl FnMut(&Call) -> Result<Answer, CallError> + Send + 'static,
    ) -> Self {
        let shared = HandleState::alone(None, staging_bytes);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let driven = runtime.handle().clone();
        let (events, mut queue) = mpsc::unbounded_channel();
        let (heard, waits) =
            (Arc::<Mutex<Vec<HeardCall>>>::default(), Arc::<Mutex<Vec<_>>>::default());
        let (told, waiting) = (Arc::clone(&heard), Arc::clone(&waits));
        let stuck = Arc::<std::sync::atomic::AtomicBool>::default();
        let stays = Arc::clone(&stuck);
        let hear = async move {
            let mut closes = Vec::new();
            while let Some(event) = queue.recv().await {
                match event {
                    Event::Call { call, deadline, filling, reply, .. } => {
                        let answer = answers(&call).map(|answer| (answer, moved()));
                        told.lock().unwrap().push(HeardCall::Call(call, deadline));
                        drop(filling);
                        let _ = reply.send(answer.map_err(FailedCall::from));
                    }
                    Event::AskFleet { model, question, deadline, reply } => {
                        told.lock().unwrap().push(HeardCall::Fleet(model, question, deadline));
                        let _ = reply.send(Ok(FleetAnswer { driver: 9, ..FleetAnswer::default() }));
                    }
                    Event::AskRouting { model, question, deadline, reply } => {
                        told.lock().unwrap().push(HeardCall::Routing(model, question, deadline));
                        let answer = RoutingAnswer { lease: Span(9), engines: Vec::new() };
                        let _ = reply.send(Ok(answer));
                    }
                    Event::AwaitSeal { reply } => waiting.lock().unwrap().push(reply),
                    Event::Close { deadline, reply } => {
                        told.lock().unwrap().push(HeardCall::Close(deadline));
                        if stays.load(Ordering::Relaxed) {
                            closes.push(reply);
                            continue;
                        }
                        let _ = reply.send(());
                        return;
                    }
                    _ => {}
                }
            }
        };
        let thread = thread::spawn(move || runtime.block_on(hear));
        let port = FakePort::saying(said);
        let requests = Arc::clone(&port.asked);
        let replica = Replica::new("rollout", 0, shards);
        let own = Own {
            events,
            runtime: driven,
            connection: to([port]),
            shared,
            thread: Mutex::new(Some(thread)),
            holder: Registrant::new("policy", &replica),
            fills,
            reservation: Mutex::default(),
            mismatch: Mutex::new(None),
        };
        let handle = ShardHandle {
            model: "policy".to_owned(),
            replica,
            server: "one".to_owned(),
            own: Owned::new(own),
            interrupted: None,
            warning: None,
            job: None,
        };
        Self { handle, heard, waits, requests, stuck }
    }

    pub(in crate::client) fn own(&self) -> &Own {
        self.handle.own().unwrap()
    }

    /// What was asked since this was called last.
    pub(in crate::client) fn heard(&self) -> Vec<HeardCall> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    /// The calls among what was asked.
    pub(in crate::client) fn calls(&self) -> Vec<Call> {
        let call = |heard| match heard {
            HeardCall::Call(call, _) => Some(call),
            _ => None,
        };
        self.heard().into_iter().filter_map(call).collect()
    }

    /// As if it had registered this memory.
    fn holding(self, region: &Region) -> Self {
        let layout = layout();
        let memory = ReservedMemory::new(&layout, std::slice::from_ref(region));
        let made = RegisteredShard::new(&[Arc::new(layout)], 0, vec![region.clone()]).unwrap();
        self.own().shared.register(made, ExportId(7));
        let reservation = self.own().holder.reserve(memory, false).unwrap();
        *self.own().reservation.lock().unwrap() = Some(Arc::new(reservation));
        self
    }
}

/// The transfer that each call reports.
fn moved() -> Transfer {
    Transfer { bytes: BYTES, way: "direct".to_owned(), ..Transfer::default() }
}

fn layout() -> Layout {
    let mut builder = LayoutBuilder::new();
    builder.add("w", DType::U8, &[BYTES], vec![Part::new("w").shape([BYTES])], 0);
    builder.build().unwrap()
}

fn region() -> Region {
    Region::allocate(BYTES as usize).unwrap()
}

const VERSION: Version = Version { epoch: Epoch(1), number: 5 };

fn committed() -> Answer {
    Answer::Committed { version: VERSION, source: "trainer".to_owned() }
}

fn saying(answer: Answer) -> HandleScene {
    HandleScene::new(1, Vec::new(), move |_| Ok(answer.clone()))
}

fn failing(shards: u32, error: CallError) -> HandleScene {
    HandleScene::new(shards, Vec::new(), move |_| Err(error.clone()))
}

#[test]
fn what_an_update_came_to_is_told() {
    for (answer, changed, version, source) in [
        (committed(), true, Some(VERSION), Some("trainer")),
        (Answer::Unchanged { held: Some(VERSION) }, false, Some(VERSION), None),
        (Answer::Unchanged { held: None }, false, None, None),
    ] {
        let scene = saying(answer);
        let updated = [
            scene.handle.replicate(Selector::Exact(5), LONG).unwrap(),
            scene.handle.update(Selector::Latest, true, LONG).unwrap(),
            scene.handle.update_staged(Selector::Latest, false, LONG).unwrap(),
        ];
        for updated in updated {
            assert_eq!((updated.changed, updated.version), (changed, version));
            assert_eq!(updated.source.as_deref(), source);
        }
        let update = |allow_rollback, staged| Call::Update {
            selector: Selector::Latest,
            allow_rollback,
            staged,
        };
        let calls = [
            Call::Replicate { selector: Selector::Exact(5) },
            update(true, false),
            update(false, true),
        ];
        let heard = scene.heard();
        for (heard, expected) in heard.iter().zip(&calls) {
            let HeardCall::Call(call, deadline) = heard else { panic!("{heard:?}") };
            assert_eq!(call, expected);
            // A staged one has done something before.
            let left = matches!(call, Call::Update { staged: true, .. });
            assert!(*deadline <= span(LONG) && deadline.0 > span(LONG).0 / 2, "{deadline:?}");
            assert_eq!(*deadline < span(LONG), left);
        }
        assert_eq!(heard[0], HeardCall::Call(calls[0].clone(), span(LONG)));
        assert_eq!(heard.len(), 3);
    }
    let other = saying(Answer::Unpublished);
    assert!(matches!(other.handle.update(Selector::Latest, true, LONG), Err(Error::Bug(_))));
}

#[test]
fn what_does_not_fit_beside_the_memory_is_declined_by_the_group() {
    for (staging, fits) in [(None, true), (Some(BYTES), true), (Some(BYTES - 1), false)] {
        for shards in [1, 2] {
            let scene = HandleScene::with_room(staging, shards, Vec::new(), |_| Ok(committed()));
            let scene = scene.holding(&region());
            let updated = scene.handle.update_staged(Selector::Latest, false, LONG);
            match (fits, updated) {
                (true, updated) => drop(updated.unwrap()),
                (false, Err(Error::NoRoom { bytes: BYTES, limit })) => assert_eq!(limit, BYTES - 1),
                (false, other) => panic!("{other:?}"),
            }
            match (&scene.calls()[..], fits, shards) {
                ([Call::Update { staged: true, .. }], true, _) | ([], false, 1) => {}
                ([Call::Decline { detail }], false, 2) => {
                    assert!(detail.contains("63"), "{detail}")
                }
                (calls, ..) => panic!("{calls:?}"),
            }
        }
    }
}

#[test]
fn memory_that_cannot_be_written_is_not_filled() {
    for (shards, fills) in [(1, true), (2, true), (1, false), (2, false)] {
        let scene = HandleScene::made(fills, None, shards, Vec::new(), |_| Ok(committed()));
        let scene = scene.holding(&region().read_only());
        for refused in [
            scene.handle.replicate(Selector::Latest, LONG),
            scene.handle.update(Selector::Latest, false, LONG),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("registered for w is read-only"), "{refused}");
        }
        let declined =
            |call: &Call| matches!(call, Call::Decline { detail } if detail.contains("read-only"));
        let calls = scene.calls();
        assert!(calls.len() == if shards == 1 { 0 } else { 2 } && calls.iter().all(declined));
    }
}

#[test]
fn memory_that_others_hold_is_not_filled_and_nobody_takes_it_meanwhile() {
    let region = region();
    let memory = || ReservedMemory::new(&layout(), std::slice::from_ref(&region));
    let (asks, asked) = channel();
    let during = memory();
    let scene = HandleScene::new(2, Vec::new(), move |call| {
        if !matches!(call, Call::Decline { .. }) {
            asks.send(somebody().reserve(during.clone(), false).is_err()).unwrap();
        }
        Ok(committed())
    });
    let scene = scene.holding(&region);
    let theirs = somebody().reserve(memory(), false).expect("nobody fills it");
    let refused = scene.handle.replicate(Selector::Latest, LONG).unwrap_err().to_string();
    assert!(refused.contains("somebody[0/1]"), "{refused}");
    assert!(matches!(&scene.calls()[..], [Call::Decline { .. }]));
    drop(theirs);
    scene.handle.replicate(Selector::Latest, LONG).unwrap();
    assert_eq!(asked.try_recv(), Ok(true), "it is filled while the call goes on");
    drop(somebody().reserve(memory(), false).expect("and not after that"));
}

#[test]
fn a_wait_ends_with_the_answer_the_deadline_or_the_interrupt() {
    let mut scene = saying(committed());
    let (sender, answer) = channel();
    for limit in [None, Some(LONG), Some(Duration::ZERO)] {
        sender.send(7).unwrap();
        assert_eq!(scene.handle.receive(&answer, limit).unwrap(), Some(7), "{limit:?}");
    }
    assert_eq!(scene.handle.receive(&answer, Some(Duration::ZERO)).unwrap(), None);
    // Asked now and then whether to go on, and does.
    let (late, times) = (sender.clone(), AtomicU64::new(0));
    scene.handle.interrupted = Some(Box::new(move || {
        if times.fetch_add(1, Ordering::Relaxed) == 1 {
            late.send(8).unwrap();
        }
        false
    }));
    assert_eq!(scene.handle.receive(&answer, Some(LONG)).unwrap(), Some(8));
    scene.handle.interrupted = Some(Box::new(|| true));
    for limit in [None, Some(LONG), Some(Duration::ZERO)] {
        let interrupted = scene.handle.receive(&answer, limit);
        assert!(matches!(interrupted, Err(Error::Interrupted)), "{interrupted:?}");
    }
    sender.send(9).unwrap();
    assert_eq!(scene.handle.receive(&answer, None).unwrap(), Some(9), "what is there is taken");
    scene.handle.interrupted = None;
    drop(sender);
    assert_eq!(scene.handle.receive(&answer, None).unwrap(), None);
}

#[test]
fn a_seal_that_does_not_come_is_a_timeout() {
    let scene = saying(committed());
    match scene.handle.wait_sealed(Duration::ZERO) {
        Err(Error::Call(CallError::Timeout { call, .. })) => assert_eq!(call, "wait_sealed"),
        other => panic!("{other:?}"),
    }
    assert!(scene.waits.lock().unwrap().len() <= 1, "it has asked once");
}

#[test]
fn where_nothing_was_ever_published_the_job_is_named() {
    let gone = |latest| CallError::VersionUnavailable {
        model: "policy".to_owned(),
        selector: Selector::Latest,
        latest,
    };
    let other = CallError::Misuse { detail: "another".to_owned() };
    for (error, job, named) in [
        (gone(None), Some("job-7"), true),
        (gone(None), None, false),
        (gone(Some(VERSION)), Some("job-7"), false),
        (other, Some("job-7"), false),
    ] {
        let mut scene = failing(1, error.clone());
        scene.handle.job = job.map(str::to_owned);
        match scene.handle.unpublish(LONG).unwrap_err() {
            Error::NobodyHere { error: told, job: told_job } => {
                assert_eq!((told, told_job.as_str(), named), (error, "job-7", true));
            }
            Error::Call(told) => assert_eq!((told, named), (error, false)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_place_where_a_read_differed_is_that_of_the_last_call() {
    let scene = saying(committed());
    assert_eq!(scene.handle.mismatch(), None);
    let (slice, said) = (Slice::full(&[BYTES]), String::new());
    let place =
        Place { tensor: "w".to_owned(), slice, source_shard: None, cause: Cause::Reader, said };
    *scene.own().mismatch.lock().unwrap() = Some(place.clone());
    assert_eq!(scene.handle.mismatch(), Some(place));
    scene.handle.unpublish(LONG).unwrap();
    assert_eq!(scene.handle.mismatch(), None);
}

#[test]
fn what_the_session_knows_is_told_without_it() {
    let scene = saying(committed());
    let progress = || (scene.handle.progress(), scene.handle.progress_total());
    assert_eq!((scene.handle.version(), progress()), (None, (0, 0)));
    let view = SessionView { held: Some(VERSION), generation: Generation(3) };
    *scene.own().shared.view.lock().unwrap() = view;
    *scene.own().shared.latest_read.lock().unwrap() = LatestRead::at(11, 4);
    assert_eq!((scene.handle.version(), progress()), (Some(VERSION), (11, 15)));
    assert!(scene.heard().is_empty());
}

#[test]
fn whoever_declines_tells_its_group_why_and_fails_with_it() {
    for (shards, told) in [(1, 0), (2, 1)] {
        let scene = HandleScene::new(shards, Vec::new(), |_| Ok(Answer::Unpublished));
        let error = scene.handle.refuse("no way", LONG);
        assert!(error.to_string().contains("no way"));
        let heard = scene.heard();
        assert_eq!(heard.len(), told);
        for heard in heard {
            let HeardCall::Call(call, deadline) = heard else { panic!("{heard:?}") };
            assert_eq!(call, Call::Decline { detail: error.to_string() });
            assert!(deadline < span(LONG) && deadline.0 > span(LONG).0 / 2, "what is left");
        }
    }
    let scene = failing(2, CallError::Misuse { detail: "broken".to_owned() });
    assert!(scene.handle.refuse("no way", LONG).to_string().contains("no way"), "its own reason");
}

#[test]
fn a_handle_that_is_closed_gives_all_back_and_does_nothing_more() {
    let region = region();
    let memory = || ReservedMemory::new(&layout(), std::slice::from_ref(&region));
    let scene = saying(committed()).holding(&region);
    assert!(somebody().reserve(memory(), true).is_err());
    scene.handle.close(Duration::from_secs(3));
    assert_eq!(scene.heard(), [HeardCall::Close(Span::from_secs(3))]);
    assert!(scene.own().shared.current().is_none());
    drop(somebody().reserve(memory(), true).expect("the memory is the program's"));
    scene.handle.close(Duration::from_secs(3));
    for refused in [
        scene.handle.unpublish(LONG),
        scene.handle.wait_sealed(LONG),
        scene.handle.wait_ended(),
        scene.handle.replicate(Selector::Latest, LONG).map(drop),
    ] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the handle is closed"), "{refused}");
    }
    assert_eq!(scene.heard(), []);
}

/// It may still write to the memory.
#[test]
fn a_thread_that_does_not_end_keeps_its_memory_from_others() {
    let region = region();
    let memory = || ReservedMemory::new(&layout(), std::slice::from_ref(&region));
    let scene = saying(committed()).holding(&region);
    scene.stuck.store(true, Ordering::Relaxed);
    let short = Duration::from_millis(1);
    scene.handle.close_within(short, short);
    assert!(scene.own().shared.current().is_none());
    assert!(somebody().reserve(memory(), true).is_err());
    // The thread may hear of it later than its caller stops waiting.
    while scene.heard.lock().unwrap().is_empty() {
        thread::yield_now();
    }
    scene.handle.close(LONG);
    assert_eq!(scene.heard(), [HeardCall::Close(span(short))], "closed once");
    drop(scene);
    assert!(somebody().reserve(memory(), true).is_err(), "for ever");
    // So no other test may get this memory.
    std::mem::forget(region);
}

#[test]
fn a_handle_that_is_dropped_leaves_in_good_order() {
    let scene = saying(committed());
    let heard = Arc::clone(&scene.heard);
    drop(scene);
    assert_eq!(*heard.lock().unwrap(), [HeardCall::Close(span(LEAVE))]);
}

#[test]
fn an_update_may_go_back_only_where_that_is_said() {
    for said in [false, true] {
        let scene = saying(committed());
        let updated = scene.handle.update(Selector::Latest, said, LONG).unwrap();
        assert_eq!(updated.transfer, moved());
        let staged = scene.handle.update_staged(Selector::Latest, said, LONG).unwrap();
        assert_eq!(staged.transfer, moved());
        for call in scene.calls() {
            let Call::Update { allow_rollback, .. } = call else { panic!("{call:?}") };
            assert_eq!(allow_rollback, said);
        }
        let unchanged = saying(Answer::Unchanged { held: None });
        let updated = unchanged.handle.update(Selector::Latest, said, LONG).unwrap();
        assert_eq!(updated.transfer, Transfer::default(), "nothing was read for it");
    }
}
