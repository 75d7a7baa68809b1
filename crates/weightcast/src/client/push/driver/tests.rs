//! What a driver makes of words, and what it says, to whom.

use std::collections::BTreeSet;

use weightcast_protocol::engine_update::FleetQuestion;
use weightcast_protocol::push::{
    ParcelsWritten, PushCommand, PushGrant, PushReport, SendRefusal, SendRefused, TargetState,
};
use weightcast_protocol::{Epoch, Generation, Span};

use super::*;
use crate::client::connection::tests::{FakePort, Said};
use crate::client::handle::tests::HandleScene;
use crate::client::handle_state::SessionView;
use crate::client::push::samples::{self, VERSION};
use crate::client::push::scene::*;
use crate::client::push::target::TargetEvent;
use crate::client::push::word::{PushOffer, ReportWord, WrittenWord};
use crate::serve::Status;
use crate::wire::{ModelStatus, ReplicaStatus, ShardStatus};

const PUSH: PushNumber = PushNumber { driver: 3, number: 2 };
const SECOND: Duration = Duration::from_secs(1);

/// A driver, which is the first sender too; the other sender; and a target.
struct DriveScene {
    own: HandleScene,
    senders: [PushScene; 2],
    target: PushScene,
    terms: PushTerms,
    /// What the driver hears, and the target.
    words: Receiver<DriverWord>,
    orders: Receiver<TargetEvent>,
}

impl DriveScene {
    fn new() -> Self {
        let senders = [0, 1].map(PushScene::sender);
        let target = PushScene::target();
        let terms = PushTerms { patience: 4 * SECOND, ..PushTerms::default() };
        let words = senders[0].state.push.drive().unwrap();
        let orders = target.state.push.target.open().unwrap();
        let own = HandleScene::new(1, Vec::new(), |call| panic!("{call:?}"));
        Self { own, senders, target, terms, words, orders }
    }

    fn push(&self, to: Option<&[&str]>) -> RunningPush<'_> {
        let to = to.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let addresses = SENDERS.into_iter().zip(&self.senders);
        RunningPush {
            handle: &self.own.handle,
            state: Arc::clone(&self.senders[0].state),
            options: &self.terms,
            until: Instant::now() + LONG,
            version: VERSION,
            number: PUSH,
            candidates: Candidates::new(VERSION, to),
            base: Base {
                names: BASE.to_vec(),
                layouts: base(),
                senders: SENDERS.map(|sender| vec![sender]).to_vec(),
                addresses: addresses.map(|(of, scene)| (of, scene.address())).collect(),
            },
            machine: None,
            targets: BTreeMap::new(),
            opened: BTreeMap::new(),
            over: BTreeMap::new(),
            ended: Vec::new(),
            // The server is not asked here.
            looks_at: Instant::now() + 3_600 * SECOND,
        }
    }

    fn offer(&self) -> PushOffer {
        PushOffer {
            replica: "rollout".to_owned(),
            shard: 0,
            target: TARGET,
            layouts: vec![WHOLE],
            accepts: true,
            holds: None,
        }
    }

    /// The target is there.
    fn status(&self) -> Status {
        let shard = ShardStatus {
            data_address: self.target.address(),
            bytes: BYTES,
            ..ShardStatus::default()
        };
        let replica = ReplicaStatus {
            name: "rollout".to_owned(),
            role: "rollout".to_owned(),
            num_shards: 1,
            shards: vec![shard],
            ..ReplicaStatus::default()
        };
        let model =
            ModelStatus { name: "m".to_owned(), replicas: vec![replica], ..ModelStatus::default() };
        Status { models: vec![model], ..Status::default() }
    }

    /// A push in which the target takes part.
    fn joined(&self) -> RunningPush<'_> {
        let mut push = self.push(None);
        push.candidates.see(&self.status(), "m", "trainer");
        push.hear(said(PushWord::Offer(self.offer()))).unwrap();
        push
    }

    /// The next order that the target hears.
    #[track_caller]
    fn order(&self) -> OrderWord {
        match self.orders.recv_timeout(LONG) {
            Ok(TargetEvent::Order(word)) => *word,
            _ => panic!("no order"),
        }
    }
}

fn said(word: PushWord) -> DriverWord {
    DriverWord::Said(Box::new(word))
}

fn grant(number: u64, sender: usize) -> PushGrant {
    PushGrant {
        push: PUSH,
        target: TARGET,
        number,
        generation: Generation(5),
        sender: SENDERS[sender],
        version: VERSION,
        parcels: [sender as u32].into(),
    }
}

/// A report of the target, with these grants.
fn report(sequence: u64, state: TargetState, grants: Vec<PushGrant>) -> ReportWord {
    let opened =
        |of: &PushGrant| OpenedGrant { number: of.number, id: 70 + of.number, nonce: [8; 32] };
    let opened = grants.iter().map(opened).collect();
    let report = PushReport {
        target: TARGET,
        push: PUSH,
        revision: 1,
        sequence,
        generation: Generation(5),
        state,
        written: BTreeSet::new(),
        differing: BTreeMap::new(),
        grants,
    };
    ReportWord { report, opened }
}

fn over(number: u64, why: TargetOver) -> PushWord {
    PushWord::Over(OverWord::new(TARGET, PushNumber { number, ..PUSH }, why, "in w"))
}

/// How the push ended at each shard so far.
fn ends(push: &RunningPush<'_>) -> Vec<(PushEnd, String)> {
    push.ended.iter().map(|of| (of.end, of.detail.clone())).collect()
}

#[test]
fn a_replica_that_offers_is_ordered_to_take_the_version_in() {
    let scene = DriveScene::new();
    let push = scene.joined();
    let word = scene.order();
    assert_eq!((&word.base[..], word.driver), (&BASE[..], scene.senders[0].address()));
    assert_eq!(word.parcels, scene.target.plan().fingerprint);
    let order = word.order;
    assert_eq!((order.push, order.version, order.target), (PUSH, VERSION, TARGET));
    assert_eq!(order.lease, span(LEASE));
    let routes = [(0, SENDERS[0]), (1, SENDERS[1])].into();
    assert_eq!(order.command, PushCommand::Fill { routes }, "each parcel from who holds it");
    let machine = push.machine.as_ref().unwrap();
    assert_eq!(SENDERS.map(|sender| machine.load(sender)), [BYTES / 2; 2]);
    let to = &push.targets[&TARGET];
    assert_eq!(
        (to.replica.as_str(), to.shard, &to.address),
        ("rollout", 0, &scene.target.address())
    );
}

#[test]
fn replicas_that_come_while_a_machine_runs_take_part_in_it() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    let offer = PushOffer { target: TargetId(51), replica: "second".to_owned(), ..scene.offer() };
    let shards = vec![(offer, scene.target.address())];
    push.join(WillingReplica { name: "second".to_owned(), shards }).unwrap();
    let machine = push.machine.as_ref().unwrap();
    assert_eq!(
        (machine.number(), machine.open().collect::<Vec<_>>()),
        (PUSH, vec![TARGET, TargetId(51)])
    );
    assert_eq!(push.targets[&TargetId(51)].replica, "second");
    assert_eq!([scene.order(), scene.order()].map(|of| of.order.target), [TARGET, TargetId(51)]);
    // One of them ends, and the push goes on.
    push.hear(DriverWord::Gone("10.0.0.1:1".to_owned())).unwrap();
    push.hear(said(over(PUSH.number, TargetOver::Left))).unwrap();
    assert!(push.machine.is_some() && push.ended.is_empty(), "told when all have ended");
}

/// Each of two targets hears its own orders, and its senders where it is and which of its shards it is.
#[test]
fn words_about_two_targets_go_each_to_its_own() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    let (other, second) = (PushScene::target(), TargetId(TARGET.0 + 1));
    let orders = other.state.push.target.open().unwrap();
    let (replica, layouts) = ("second".to_owned(), vec![WHOLE; 2]);
    let offer = PushOffer { replica, shard: 1, target: second, layouts, ..scene.offer() };
    let shards = vec![(offer, other.address())];
    push.join(WillingReplica { name: "second".to_owned(), shards }).unwrap();
    assert_eq!(scene.order().order.target, TARGET);
    match orders.recv_timeout(LONG) {
        Ok(TargetEvent::Order(word)) => assert_eq!(word.order.target, second),
        _ => panic!("no order"),
    }
    let (told, tells) = std::sync::mpsc::channel();
    scene.senders[1].state.exports.listen(move |bytes| told.send(bytes.to_vec()).is_ok());
    for (target, at, shard, of) in [(second, &other, 1, 2), (TARGET, &scene.target, 0, 1)] {
        let grants = vec![PushGrant { target, ..grant(4, 1) }];
        let mut word = report(1, TargetState::Filling, grants);
        (word.report.target, word.opened[0].id) = (target, target.0);
        push.hear(said(PushWord::Report(word))).unwrap();
        let word = PushWord::decode(&tells.recv_timeout(LONG).unwrap());
        let Ok(PushWord::Grant(word)) = word else { panic!("{word:?}") };
        assert_eq!((word.grant.target, word.opened.id, word.at), (target, target.0, at.address()));
        assert_eq!((word.layouts, word.shard), (vec![WHOLE; of], shard));
    }
    push.hear(DriverWord::Gone(other.address())).unwrap();
    assert_eq!(push.machine.as_ref().unwrap().open().collect::<Vec<_>>(), [TARGET]);
}

#[test]
fn what_a_machine_is_told_of_a_push() {
    let scene = DriveScene::new();
    let push = scene.push(None);
    let config = push.config();
    assert_eq!((config.push, config.version, config.moves), (PUSH, VERSION, 3));
    assert!(config.deadline <= span(LONG) && config.deadline > span(LONG / 2));
    assert_eq!((config.silence, config.patience), (span(10 * SECOND), span(4 * SECOND)));
    assert_eq!((config.lease, config.ask_every), (span(15 * SECOND), span(SECOND / 5)));
}

#[test]
fn grants_are_passed_on_to_their_senders() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    // The second sender's process has no version any more, so it refuses what it hears.
    scene.senders[1].holds(None);
    let grants = vec![grant(4, 1)];
    push.hear(said(PushWord::Report(report(1, TargetState::Filling, grants)))).unwrap();
    let refused = match heard(&scene.words) {
        PushWord::Refused(word) => word,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        (refused.sender, refused.grant, refused.refusal),
        (SENDERS[1], 4, SendRefusal::NotHeld)
    );
    push.hear(said(PushWord::Refused(refused))).unwrap();
    assert_eq!(
        ends(&push),
        [(PushEnd::Ended(TargetEnd::NoHolder), String::new())],
        "nobody else has it"
    );
    assert_eq!(push.ended[0].bytes, 0);
}

#[test]
fn a_grant_is_told_with_all_that_its_sender_needs() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    // A target in the place of the sender hears the word, as it is.
    let (told, tells) = std::sync::mpsc::channel();
    scene.senders[1].state.exports.listen(move |bytes| told.send(bytes.to_vec()).is_ok());
    let mut word = report(1, TargetState::Filling, vec![grant(4, 1)]);
    let opened = std::mem::take(&mut word.opened);
    push.hear(said(PushWord::Report(word.clone()))).unwrap();
    assert!(push.opened.is_empty(), "its name at the data port is not known");
    (word.opened, word.report.sequence) = (opened.clone(), 2);
    push.hear(said(PushWord::Report(word))).unwrap();
    push.machine.as_mut().unwrap().handle_timeout(Time(push.state.push.now().0 + span(SECOND).0));
    push.carry_out();
    let bytes = tells.recv_timeout(LONG).unwrap();
    let expected = GrantWord {
        grant: grant(4, 1),
        opened: opened[0],
        at: scene.target.address(),
        driver: scene.senders[0].address(),
        base: BASE.to_vec(),
        layouts: vec![WHOLE],
        shard: 0,
        parcels: scene.target.plan().fingerprint,
    };
    assert_eq!(PushWord::decode(&bytes), Ok(PushWord::Grant(expected)));
}

#[test]
fn an_end_of_another_push_does_not_end_this_one() {
    let scene = DriveScene::new();
    scene.push(None).hear(said(over(2, TargetOver::Left))).unwrap(); // before anybody takes part
    let mut push = scene.joined();
    for number in [PUSH.number - 1, PUSH.number + 1] {
        push.hear(said(over(number, TargetOver::Left))).unwrap();
        assert!(push.machine.is_some() && push.targets.len() == 1 && push.over.is_empty());
    }
    let other = PushNumber { driver: PUSH.driver - 1, ..PUSH };
    let word = OverWord::new(TARGET, other, TargetOver::Left, "");
    push.hear(said(PushWord::Over(word))).unwrap();
    assert_eq!(ends(&push), []);
    push.hear(said(over(PUSH.number, TargetOver::Left))).unwrap();
    assert_eq!(ends(&push), [(PushEnd::Ended(TargetEnd::Left), "in w".to_owned())]);
    assert!(push.machine.is_none() && push.targets.is_empty() && push.over.is_empty());
    assert_eq!(push.number.driver, PUSH.driver);
}

#[test]
fn a_target_whose_content_differs_says_so() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    push.hear(said(over(PUSH.number, TargetOver::Differs))).unwrap();
    assert_eq!(ends(&push), [(PushEnd::Ended(TargetEnd::Differs), "in w".to_owned())]);
}

/// What targets of other pushes say, and what cannot be meant.
#[test]
fn a_report_counts_if_it_is_of_a_target_and_of_its_plan() {
    let scene = DriveScene::new();
    let ready = |change: fn(&mut ReportWord)| {
        let mut word = report(1, TargetState::Ready, Vec::new());
        change(&mut word);
        said(PushWord::Report(word))
    };
    let mut push = scene.joined();
    push.hear(ready(|word| word.report.target.0 += 1)).unwrap();
    push.hear(ready(|word| word.report.written = [2].into())).unwrap();
    assert_eq!(ends(&push), []);
    push.hear(ready(|word| word.report.written = [0, 1].into())).unwrap();
    assert_eq!(ends(&push), [(PushEnd::New, String::new())]);
    assert_eq!(push.ended[0].bytes, BYTES);
    assert!(push.machine.is_none());
}

/// A target that obeys a later driver: this one's next push is later still.
#[test]
fn a_driver_that_targets_have_heard_is_noted() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    let mut word = report(1, TargetState::Filling, Vec::new());
    word.report.push = PushNumber { driver: 40, number: 1 };
    push.hear(said(PushWord::Report(word))).unwrap();
    assert_eq!(ends(&push), [(PushEnd::Ended(TargetEnd::Superseded), String::new())]);
    let mut asked = Vec::new();
    let mut numbers = push.state.push.numbers.lock().unwrap();
    let next = numbers.next(|question| {
        let FleetQuestion::PushNumber { heard, .. } = question else { panic!("{question:?}") };
        asked.push(heard);
        Ok(if heard.is_some() { 41 } else { 39 })
    });
    assert_eq!((next.unwrap().driver, asked), (41, vec![None, Some(40)]));
}

#[test]
fn who_is_lost_is_whoever_was_at_the_address() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    push.hear(DriverWord::Gone("10.0.0.1:1".to_owned())).unwrap();
    assert_eq!(ends(&push), []);
    push.hear(DriverWord::Gone(scene.target.address())).unwrap();
    assert_eq!(ends(&push), [(PushEnd::Ended(TargetEnd::Lost), String::new())]);
    // Where a sender is lost that alone has a parcel.
    for sender in &scene.senders {
        let mut push = scene.joined();
        push.hear(DriverWord::Gone(sender.address())).unwrap();
        assert_eq!(ends(&push), [(PushEnd::Ended(TargetEnd::NoHolder), String::new())]);
    }
}

#[test]
fn those_that_come_when_a_machine_has_ended_get_the_next_number() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    let before = push.state.push.numbers.lock().unwrap().next_push();
    push.hear(said(PushWord::Report(report(1, TargetState::Filling, vec![grant(4, 1)])))).unwrap();
    assert_eq!(push.opened.len(), 1);
    push.hear(said(PushWord::Report(report(2, TargetState::Ready, Vec::new())))).unwrap();
    assert_eq!(push.number, PushNumber { number: before + 1, ..PUSH });
    assert!(push.opened.is_empty(), "grants are numbered by their target, which may begin anew");
    let willing = WillingReplica {
        name: "later".to_owned(),
        shards: vec![(scene.offer(), scene.target.address())],
    };
    push.join(willing).unwrap();
    assert_eq!(push.machine.as_ref().unwrap().number(), push.number);
    assert_eq!(scene.order().order.push, PUSH);
    assert_eq!(scene.order().order.push, push.number);
}

/// Those that did not take part are told too, and all in order.
#[test]
fn a_result_is_by_replica_and_shard() {
    let scene = DriveScene::new();
    let mut push = scene.push(Some(&["b", "a"]));
    let shard = |replica: &str, shard| PushedShard {
        replica: replica.to_owned(),
        shard,
        end: PushEnd::New,
        bytes: 1,
        seconds: 0.0,
        moved: 0,
        detail: String::new(),
    };
    push.ended = vec![shard("ab", 1), shard("c", 0), shard("ab", 0)];
    let result = push.result();
    let shards: Vec<_> = result.shards.iter().map(|of| (of.replica.as_str(), of.shard)).collect();
    assert_eq!(shards, [("a", 0), ("ab", 0), ("ab", 1), ("b", 0), ("c", 0)]);
    assert!(result.version == VERSION && !result.is_whole(), "two are absent");
}

#[test]
fn what_became_of_a_target_is_told() {
    let scene = DriveScene::new();
    let to = scene.joined().targets.remove(&TARGET).unwrap();
    let outcome = |end, missing: &[(usize, &[u32])], unheld: &[u32]| TargetOutcome {
        end,
        missing: missing
            .iter()
            .map(|(of, p)| (SENDERS[*of], p.iter().copied().collect()))
            .collect(),
        unheld: unheld.iter().copied().collect(),
        moved: 5,
        took: Span(2_500_000_000),
    };
    let half = BYTES / 2;
    for (missing, unheld, bytes) in [
        (&[][..], &[][..], BYTES),
        (&[(0, &[0][..])], &[], half),
        (&[(0, &[0][..])], &[0], half),
        (&[(0, &[][..]), (1, &[1])], &[0], 0),
        (&[], &[1, 2], half),
    ] {
        let told = ended(&to, &outcome(TargetEnd::Silent, missing, unheld), None);
        assert_eq!((told.bytes, told.end), (bytes, PushEnd::Ended(TargetEnd::Silent)));
        assert_eq!((told.replica.as_str(), told.shard, told.moved), ("rollout", 0, 5));
        assert_eq!((told.seconds, told.detail.as_str()), (2.5, ""));
    }
    let over = |why| Some(OverWord::new(TARGET, PUSH, why, "in w"));
    for (end, why, expected) in [
        (TargetEnd::Ready, TargetOver::Differs, PushEnd::New),
        (TargetEnd::Ready, TargetOver::Left, PushEnd::New),
        (TargetEnd::Left, TargetOver::Differs, PushEnd::Ended(TargetEnd::Differs)),
        (TargetEnd::Left, TargetOver::Left, PushEnd::Ended(TargetEnd::Left)),
        (TargetEnd::Lost, TargetOver::Left, PushEnd::Ended(TargetEnd::Lost)),
    ] {
        let told = ended(&to, &outcome(end, &[], &[]), over(why));
        assert_eq!((told.end, told.detail.as_str()), (expected, "in w"));
    }
}

#[test]
fn what_is_held_and_asked_for_can_be_pushed() {
    let scene = DriveScene::new();
    let pushable = |held: Option<u64>, asked| {
        let held = held.map(|number| Version { epoch: Epoch(2), number });
        *scene.own.own().shared.view.lock().unwrap() =
            SessionView { held, generation: Generation(1) };
        scene.own.handle.pushable(asked).map(|version| version.number).map_err(|e| e.to_string())
    };
    assert_eq!((pushable(Some(4), None), pushable(Some(4), Some(4))), (Ok(4), Ok(4)));
    for asked in [3, 5] {
        let refused = pushable(Some(4), Some(asked)).unwrap_err();
        assert!(refused.contains(&format!("version {asked} cannot be pushed")), "{refused}");
    }
    for asked in [None, Some(4)] {
        assert!(pushable(None, asked).unwrap_err().contains("before it is published"));
    }
}

/// As long as nothing is due, and a moment at least.
#[test]
fn a_driver_waits_for_what_is_due_next() {
    let scene = DriveScene::new();
    let mut push = scene.push(None);
    assert_eq!(push.wait(), TICK);
    let needs = || PushInput::Joins(vec![TargetNeeds { target: TARGET, parcels: Vec::new() }]);
    for (ask_every, least, most) in [
        (Duration::ZERO, Duration::from_millis(1), Duration::from_millis(1)),
        (TICK / 2, Duration::from_millis(1), TICK / 2),
        (3_600 * SECOND, TICK, TICK),
    ] {
        let later = span(3_600 * SECOND);
        let config = PushConfig {
            ask_every: span(ask_every),
            deadline: later,
            silence: later,
            ..push.config()
        };
        let mut machine = PushDriver::new(config);
        machine.handle(push.state.push.now(), needs());
        push.machine = Some(machine);
        let wait = push.wait();
        assert!(least <= wait && wait <= most, "{wait:?}");
    }
}

/// A server that refuses is asked no more often than others.
#[test]
fn a_driver_looks_now_and_then() {
    let refused = Said::Refused(tonic::Status::unavailable("down"));
    let port = FakePort::saying([refused]);
    let asked = Arc::clone(&port.asked);
    let mut scene = DriveScene::new();
    scene.senders[0] = PushScene::sender_of(0, port);
    let mut push = scene.push(None);
    push.look();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 0, "it is not time yet");
    let before = Instant::now();
    push.looks_at = before;
    push.look();
    assert_eq!(asked.load(std::sync::atomic::Ordering::Relaxed), 1);
    assert!(push.looks_at >= before + LOOK);
}

#[test]
fn a_push_ends_when_nobody_is_waited_for_or_its_time_is_over() {
    let scene = DriveScene::new();
    let hour = Instant::now() + 3_600 * SECOND;
    let mut settled = scene.push(Some(&[]));
    settled.until = hour;
    let settled = settled.run(&scene.words).unwrap();
    assert!(settled.shards.is_empty() && !settled.is_whole());
    // Of a push to all that accept, one has ended, and nobody else is waited for.
    let mut joined = scene.joined();
    joined.until = hour;
    joined.hear(said(PushWord::Report(report(1, TargetState::Ready, Vec::new())))).unwrap();
    assert!(joined.run(&scene.words).unwrap().is_whole());
    let mut late = scene.push(Some(&["nobody"]));
    late.until = Instant::now();
    let ends = late.run(&scene.words).unwrap().shards;
    assert_eq!(ends.iter().map(|of| of.end).collect::<Vec<_>>(), [PushEnd::Absent]);
    // A target of which nothing is heard has as long as the push.
    let mut silent = scene.push(Some(&["rollout"]));
    silent.until = Instant::now() + TICK;
    silent.candidates.see(&scene.status(), "m", "trainer");
    assert!(scene.senders[0].state.push.to_driver(said(PushWord::Offer(scene.offer()))));
    let ends = silent.run(&scene.words).unwrap().shards;
    assert_eq!(
        ends.iter().map(|of| of.end).collect::<Vec<_>>(),
        [PushEnd::Ended(TargetEnd::Deadline)]
    );
    scene.senders[0].state.push.end_drive();
    let broken = scene.push(Some(&["nobody"])).run(&scene.words);
    assert!(matches!(broken, Err(Error::Bug(_))), "{broken:?}");
}

#[test]
fn a_push_that_is_interrupted_dismisses_its_targets() {
    let mut scene = DriveScene::new();
    scene.own.handle.interrupted = Some(Box::new(|| true));
    let push = scene.joined();
    assert!(matches!(push.run(&scene.words), Err(Error::Interrupted)));
    assert!(matches!(scene.order().order.command, PushCommand::Fill { .. }));
    assert_eq!(scene.order().order.command, PushCommand::Dismiss);
}

/// A driver's words come to its own data port as well; those that are not for drivers say nothing here.
#[test]
fn what_is_no_word_for_a_driver_changes_nothing() {
    let scene = DriveScene::new();
    let mut push = scene.joined();
    let written =
        ParcelsWritten { target: TARGET, grant: 4, sender: SENDERS[0], parcels: [0].into() };
    let refused = SendRefused {
        push: PushNumber { number: 1, ..PUSH },
        target: TARGET,
        grant: 4,
        sender: SENDERS[0],
        refusal: SendRefusal::Failed,
    };
    for word in [
        PushWord::Written(WrittenWord { written, sums: BTreeMap::new() }),
        PushWord::Order(samples::order([0])),
        PushWord::Refused(refused),
    ] {
        push.hear(said(word)).unwrap();
        assert!(push.machine.is_some() && ends(&push).is_empty());
    }
}
