//! A target's thread, word by word: what its driver hears of it, and what becomes of the session's read.

use std::collections::BTreeMap;
use std::thread::{self, JoinHandle};

use weightcast_protocol::message::{Assignment, SourceShard};
use weightcast_protocol::push::{PushCommand, PushGrant, PushNumber, PushReport};
use weightcast_protocol::{Span, Time};
use weightcast_transport::ExportTable;

use super::*;
use crate::client::push::desk::DriverWord;
use crate::client::push::samples::VERSION;
use crate::client::push::scene::*;

const PUSH: PushNumber = PushNumber { driver: 3, number: 2 };

type ReadEnd = Result<Box<ArrivedRead>, ReadFailure>;

/// A target that is filled, and its driver.
struct FillScene {
    target: PushScene,
    driver: PushScene,
    words: Receiver<DriverWord>,
    thread: Option<JoinHandle<()>>,
}

/// What is left of a fill.
struct EndedFill {
    target: PushScene,
    words: Receiver<DriverWord>,
    /// What the machine that rests says of itself.
    rests: PushReport,
    _driver: PushScene,
}

/// An order of the first push.
fn ordered(driver: &PushScene) -> OrderWord {
    driver.order(PUSH, 1)
}

fn assignment(target: &PushScene, version: Version) -> Assignment {
    let shard = |layout: &_| SourceShard {
        data_address: "127.0.0.1:1".to_owned(),
        export: weightcast_protocol::ExportId(1),
        generation: Generation(1),
        layout: *layout,
    };
    Assignment {
        version,
        catalog: target.state.current().unwrap().0.catalog,
        replica: "trainer".to_owned(),
        in_flight: false,
        staged: false,
        helpers: Vec::new(),
        shards: BASE.iter().map(shard).collect(),
    }
}

fn read_of(target: &PushScene, version: Version, keep: bool) -> (PushedRead, Receiver<ReadEnd>) {
    let (told, tells) = std::sync::mpsc::channel();
    let assignment = assignment(target, version);
    let state = Arc::clone(&target.state);
    let report = Box::new(move |result: Result<ArrivedRead, _>| {
        assert_eq!(state.exports.exports().grants(), 0, "nobody writes any more");
        let own = !state.push.target.fills();
        assert!(result.is_ok() || own, "what is left is read by the session's next read");
        told.send(result.map(Box::new)).expect("it is waited for");
    });
    (PushedRead { assignment, keep, cancelled: Arc::default(), report }, tells)
}

impl FillScene {
    fn begun() -> Self {
        Self::by(ordered)
    }

    fn by(order: impl FnOnce(&PushScene) -> OrderWord) -> Self {
        Self::of(PushScene::target(), order)
    }

    fn of(target: PushScene, order: impl FnOnce(&PushScene) -> OrderWord) -> Self {
        let driver = PushScene::sender(0);
        target.state.view.lock().unwrap().generation = Generation(7);
        let words = driver.state.push.drive().unwrap();
        let events = target.state.push.target.open().unwrap();
        let first = order(&driver);
        let fill = Fill::new(&target.state, &first, Instant::now() + LONG).unwrap();
        target.state.push.target.begin_fill();
        let thread = Some(thread::spawn(move || fill.run(first, &events)));
        Self { target, driver, words, thread }
    }

    /// The next report.
    #[track_caller]
    fn report(&self) -> ReportWord {
        match heard(&self.words) {
            PushWord::Report(word) => word,
            other => panic!("{other:?}"),
        }
    }

    /// The next report of this state.
    #[track_caller]
    fn until(&self, state: TargetState) -> ReportWord {
        loop {
            let word = self.report();
            if word.report.state == state {
                return word;
            }
        }
    }

    #[track_caller]
    fn over(&self) -> OverWord {
        loop {
            match heard(&self.words) {
                PushWord::Over(word) => return word,
                PushWord::Report(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn order(&self, word: OrderWord) {
        assert_eq!(self.target.state.push.target.order(Time(0), word), Some(Vec::new()));
    }

    fn read(&self) -> Receiver<ReadEnd> {
        self.read_of(VERSION, false)
    }

    fn read_of(&self, version: Version, keep: bool) -> Receiver<ReadEnd> {
        let (read, tells) = read_of(&self.target, version, keep);
        assert!(self.target.state.push.target.take_read(read).is_none());
        tells
    }

    /// The session begins its read; the grants that are opened then.
    fn fenced(&self) -> (Receiver<ReadEnd>, Vec<PushGrant>) {
        assert_eq!(self.until(TargetState::Pausing).report.grants, []);
        let tells = self.read();
        (tells, self.until(TargetState::Filling).report.grants)
    }

    /// A sender writes its half, and says so.
    fn write(&self, grant: &PushGrant) {
        self.write_as(grant, grant.sender, 0);
    }

    /// The same, with a byte that is wrong where `wrong` is not zero.
    fn write_as(&self, grant: &PushGrant, sender: SenderId, wrong: u8) {
        self.send(grant, sender, 0, wrong);
    }

    /// The same by a sender that holds other bytes where `other` is not zero.
    fn send(&self, grant: &PushGrant, sender: SenderId, other: u8, wrong: u8) {
        let plan = self.target.plan();
        let registration = self.target.state.current().unwrap().0;
        let mut sums = BTreeMap::new();
        for number in &grant.parcels {
            let at = *number as usize * 8;
            let half: Vec<u8> = content()[at..at + 8].iter().map(|byte| byte ^ other).collect();
            self.target.region.write_at(at, &half).unwrap();
            let of = PushPlan::new(Arc::clone(&registration), &whole_plan(&self.target));
            sums.insert(*number, of.sum(&of.digests(&plan.parcels[*number as usize], 1, || true)));
            self.target.region.write_at(at, &[half[0] ^ wrong]).unwrap();
        }
        self.says(grant.number, sender, sums);
    }

    fn says(&self, grant: u64, sender: SenderId, sums: BTreeMap<u32, Sum>) {
        let parcels = sums.keys().copied().collect();
        let written = ParcelsWritten { target: TARGET, grant, sender, parcels };
        assert!(self.target.state.push.target.written(WrittenWord { written, sums }));
    }

    /// The next report of parcels that differ.
    #[track_caller]
    fn differing(&self) -> ReportWord {
        loop {
            let word = self.until(TargetState::Filling);
            if !word.report.differing.is_empty() {
                return word;
            }
        }
    }

    /// The call ends.
    fn end(mut self, result: Result<(), (TargetOver, String)>) -> EndedFill {
        let room = &self.target.state.push.target;
        room.end_fill(self.target.state.exports.exports());
        room.ended(result);
        self.thread.take().unwrap().join().unwrap();
        room.close();
        let rests = room.take(TARGET, Generation(99)).report();
        EndedFill { target: self.target, words: self.words, rests, _driver: self.driver }
    }

    fn exports(&self) -> &ExportTable {
        self.target.state.exports.exports()
    }
}

fn whole_plan(target: &PushScene) -> Plan {
    let registration = target.state.current().unwrap().0;
    let sources = base();
    let sources: Vec<_> = sources.iter().map(Arc::as_ref).collect();
    weightcast_plan::plan(&registration.layout, &registration.cells, &sources).unwrap()
}

#[test]
fn a_target_is_filled_from_its_order_to_its_version() {
    let scene = FillScene::begun();
    let first = scene.report();
    assert_eq!(
        (first.report.push, first.report.revision, first.report.state),
        (PUSH, 1, TargetState::Pausing)
    );
    assert_eq!((first.report.generation, first.opened.len()), (Generation(7), 0));
    let (read, tells) = read_of(&scene.target, VERSION, false);
    let cancelled = Arc::clone(&read.cancelled);
    assert!(scene.target.state.push.target.take_read(read).is_none());
    let filling = scene.until(TargetState::Filling);
    let grants = filling.report.grants;
    assert_eq!(grants.iter().map(|of| of.sender).collect::<Vec<_>>(), SENDERS);
    assert!(grants.iter().all(|of| (of.version, of.generation) == (VERSION, Generation(8))));
    let opened: Vec<u64> = filling.opened.iter().map(|of| of.number).collect();
    assert_eq!(opened, grants.iter().map(|of| of.number).collect::<Vec<_>>());
    assert_eq!(scene.exports().grants(), 2);
    scene.write(&grants[0]);
    assert_eq!(scene.report().report.written, [0].into());
    assert!(tells.try_recv().is_err(), "it is not whole");
    scene.write(&grants[1]);
    let verifying = scene.report();
    assert_eq!((verifying.report.state, verifying.opened.len()), (TargetState::Verifying, 0));
    assert_eq!((verifying.report.written, scene.exports().grants()), ([0, 1].into(), 0));
    let arrived = tells.recv_timeout(LONG).unwrap().unwrap();
    let registration = scene.target.state.current().unwrap().0;
    let digests = registration.digest_all();
    assert_eq!(arrived.sums, registration.fold(&digests));
    assert_eq!(arrived.note, registration.note(&digests));
    assert_eq!(arrived.evidence.digests, digests);
    assert_eq!((arrived.in_place, arrived.evidence.sources.len()), (true, 2));
    assert!(Arc::ptr_eq(&arrived.evidence.overwritten, &cancelled));
    assert_eq!(arrived.evidence.assignment, assignment(&scene.target, VERSION));
    let moved = &arrived.transfer;
    assert_eq!((moved.bytes, moved.verified, moved.tcp, moved.direct), (BYTES, BYTES, BYTES, 0));
    assert_eq!((moved.way.as_str(), moved.plan_from), ("push", PlanFrom::Planner));
    assert!(moved.way_reason.starts_with("2 senders"), "{}", moved.way_reason);
    let ended = scene.end(Ok(()));
    let PushWord::Report(ready) = heard(&ended.words) else { panic!("no report") };
    assert_eq!((ready.report.state, ended.rests.state), (TargetState::Ready, TargetState::Ready));
    assert_eq!(ended.target.region.to_vec(), content());
}

/// Where the content differs, the search goes to the source that the server has named, whose layouts may be others than
/// those of the senders.
#[test]
fn evidence_is_of_the_source_that_was_assigned() {
    let scene = FillScene::begun();
    assert_eq!(scene.until(TargetState::Pausing).report.grants, []);
    let (mut read, tells) = read_of(&scene.target, VERSION, false);
    let source = SourceShard { layout: WHOLE, ..read.assignment.shards[0].clone() };
    read.assignment.shards = [source].into();
    assert!(scene.target.state.push.target.take_read(read).is_none());
    let grants = scene.until(TargetState::Filling).report.grants;
    grants.iter().for_each(|grant| scene.write(grant));
    let evidence = tells.recv_timeout(LONG).unwrap().unwrap().evidence;
    assert_eq!((evidence.sources, evidence.plan.copies.len()), (vec![whole()], 1));
    drop(scene.end(Ok(())));
}

/// Each parcel is compared with what its own sender has sent.
#[test]
fn a_parcel_that_is_not_what_was_sent_is_written_again() {
    for wrong in [0, 1] {
        let scene = FillScene::begun();
        let (tells, grants) = scene.fenced();
        for (number, grant) in grants.iter().enumerate() {
            scene.write_as(grant, grant.sender, u8::from(number == wrong));
        }
        let again = scene.differing();
        let (bad, good) = (wrong as u32, 1 - wrong as u32);
        assert_eq!(again.report.differing, [(bad, SENDERS[wrong])].into());
        assert_eq!((again.report.written, again.report.grants.len()), ([good].into(), 0));
        assert_eq!((again.report.generation, scene.exports().grants()), (Generation(9), 0));
        assert!(tells.try_recv().is_err());
        // The other one writes it.
        let mut order = scene.driver.order(PUSH, 2);
        let routes = [(0, SENDERS[1 - wrong]), (1, SENDERS[1 - wrong])].into();
        order.order.command = PushCommand::Fill { routes };
        scene.order(order);
        let [grant] = &scene.until(TargetState::Filling).report.grants[..] else { panic!("one") };
        assert_eq!((grant.sender, &grant.parcels), (SENDERS[1 - wrong], &[bad].into()));
        scene.write(grant);
        tells.recv_timeout(LONG).unwrap().unwrap();
        drop(scene.end(Ok(())));
    }
}

/// What a sender with corrupt memory has sent is what it said, and the server refuses that.
#[test]
fn a_parcel_is_compared_with_what_was_sent_last() {
    let scene = FillScene::begun();
    let (tells, grants) = scene.fenced();
    scene.send(&grants[0], SENDERS[0], 1, 0);
    scene.write(&grants[1]);
    tells.recv_timeout(LONG).unwrap().unwrap();
    let again = scene.read();
    scene.differing();
    scene.order(scene.driver.order(PUSH, 2));
    let grants = scene.until(TargetState::Filling).report.grants;
    grants.iter().for_each(|grant| scene.write(grant));
    again.recv_timeout(LONG).unwrap().unwrap();
    assert_eq!(scene.end(Ok(())).target.region.to_vec(), content());
}

#[test]
fn what_is_said_of_a_grant_that_is_not_the_speakers_counts_for_nothing() {
    let scene = FillScene::begun();
    let (tells, grants) = scene.fenced();
    scene.write(&grants[0]);
    let wrong: BTreeMap<u32, Sum> = [(0, Sum([1, 2])), (1, Sum([3, 4]))].into();
    scene.says(grants[0].number, SENDERS[1], wrong.clone());
    scene.says(grants[0].number, SenderId(99), wrong.clone());
    scene.says(99, SENDERS[0], wrong);
    scene.write(&grants[1]);
    let arrived = tells.recv_timeout(LONG).unwrap().unwrap();
    assert!(arrived.transfer.way_reason.starts_with("2 senders"));
    drop(scene.end(Ok(())));
}

#[test]
fn a_group_that_reads_another_version_ends_the_push_here() {
    let scene = FillScene::begun();
    let other = Version { number: VERSION.number + 1, ..VERSION };
    let tells = scene.read_of(other, false);
    let over = scene.over();
    assert_eq!((over.target, over.push, over.why), (TARGET, PUSH, TargetOver::Left));
    assert_eq!(over.detail, format!("the group reads {other}"));
    match tells.recv_timeout(LONG).unwrap() {
        Err(ReadFailure::Source { shard: 0, reason }) => assert_eq!(reason, over.detail),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was read"),
    }
    let room = &scene.target.state.push.target;
    assert!(!room.fills(), "what is left this end reads");
    assert_eq!(scene.exports().grants(), 0);
    let ended = scene.end(Ok(()));
    assert_eq!(ended.rests.state, TargetState::Empty);
    let later = ended.words.try_recv();
    assert!(
        !matches!(&later, Ok(DriverWord::Said(word)) if matches!(**word, PushWord::Over(_))),
        "{later:?}"
    );
}

/// A data port that opens no grant: what it says is the end of the push here.
#[test]
fn a_grant_that_cannot_be_opened_ends_the_push_here() {
    let target = PushScene::target();
    let (registration, export) = target.state.current().unwrap();
    target.state.register(registration.within(vec![target.region.clone().read_only()]), export);
    let scene = FillScene::of(target, ordered);
    let tells = scene.read();
    let over = scene.over();
    assert_eq!((over.why, over.push), (TargetOver::Left, PUSH));
    match tells.recv_timeout(LONG).unwrap() {
        Err(ReadFailure::Source { shard: 0, reason }) => assert_eq!(reason, over.detail),
        _ => panic!("it was read"),
    }
    drop(scene.end(Ok(())));
}

/// What a call came to, when, and what the driver hears of that.
#[test]
fn a_driver_hears_how_the_call_ended() {
    let differs = || Err((TargetOver::Differs, "in w".to_owned()));
    let left = || Err((TargetOver::Left, "no group".to_owned()));
    let held = "the memory holds the version already";
    let ends = |begins: bool, fills: bool, result| {
        let scene = FillScene::begun();
        if begins {
            let (tells, grants) = scene.fenced();
            if fills {
                grants.iter().for_each(|grant| scene.write(grant));
                tells.recv_timeout(LONG).unwrap().unwrap();
            }
        }
        let ended = scene.end(result);
        assert_eq!(ended.target.state.exports.exports().grants(), 0);
        let over = loop {
            match heard(&ended.words) {
                PushWord::Over(over) => break Some((over.why, over.detail)),
                PushWord::Report(word) if word.report.state == TargetState::Ready => break None,
                _ => {}
            }
        };
        (over, ended.rests.state)
    };
    let told = |why, detail: &str| (Some((why, detail.to_owned())), TargetState::Empty);
    assert_eq!(ends(false, false, Ok(())), told(TargetOver::Left, held), "nothing was written");
    assert_eq!(ends(true, false, Ok(())), told(TargetOver::Left, held));
    assert_eq!(ends(true, true, Ok(())), (None, TargetState::Ready));
    for (begins, fills) in [(false, false), (true, false), (true, true)] {
        assert_eq!(ends(begins, fills, differs()), told(TargetOver::Differs, "in w"));
        assert_eq!(ends(begins, fills, left()), told(TargetOver::Left, "no group"));
    }
}

#[test]
fn a_driver_that_is_silent_for_a_lease_leaves_the_rest_to_a_read() {
    let scene = FillScene::by(|driver| {
        let mut word = ordered(driver);
        word.order.lease = Span(1);
        word
    });
    assert_eq!(scene.report().report.state, TargetState::Pausing);
    // Whether the read comes before or after, it is told that nobody fills.
    let (read, tells) = read_of(&scene.target, VERSION, false);
    let taken = scene.target.state.push.target.take_read(read).is_none();
    scene.until(TargetState::Empty);
    if taken {
        match tells.recv_timeout(LONG).unwrap() {
            Err(ReadFailure::Source { shard: 0, reason }) => {
                assert_eq!(reason, "the push ended before it was whole");
            }
            _ => panic!("nobody has filled it"),
        }
    }
    let ended = scene.end(Ok(()));
    assert_eq!(ended.rests.state, TargetState::Empty);
}

#[test]
fn a_driver_that_dismisses_its_target_leaves_the_rest_to_a_read() {
    let scene = FillScene::begun();
    let (tells, _) = scene.fenced();
    let mut word = scene.driver.order(PUSH, 2);
    word.order.command = PushCommand::Dismiss;
    scene.order(word);
    assert_eq!(scene.until(TargetState::Empty).report.revision, 2);
    assert!(matches!(tells.recv_timeout(LONG), Ok(Err(ReadFailure::Source { shard: 0, .. }))));
    let room = &scene.target.state.push.target;
    assert!(!room.fills() && scene.exports().grants() == 0);
    drop(scene.end(Ok(())));
}

/// The session asks again after its group's sums were not the version's: then every parcel is in doubt. Not where what
/// was filled is to be kept, since only another shard of the group has to read again.
#[test]
fn a_read_that_begins_anew_doubts_all_parcels_unless_they_are_kept() {
    for keep in [true, false] {
        let scene = FillScene::begun();
        let (tells, grants) = scene.fenced();
        grants.iter().for_each(|grant| scene.write(grant));
        tells.recv_timeout(LONG).unwrap().unwrap();
        let again = scene.read_of(VERSION, keep);
        if keep {
            again.recv_timeout(LONG).unwrap().unwrap();
            let ended = scene.end(Ok(()));
            assert_eq!(ended.rests.state, TargetState::Ready);
            continue;
        }
        let doubted = scene.differing();
        assert_eq!(doubted.report.differing, [(0, SENDERS[0]), (1, SENDERS[1])].into());
        assert!(doubted.report.written.is_empty() && again.try_recv().is_err());
        scene.order(scene.driver.order(PUSH, 2));
        let grants = scene.until(TargetState::Filling).report.grants;
        grants.iter().for_each(|grant| scene.write(grant));
        again.recv_timeout(LONG).unwrap().unwrap();
        drop(scene.end(Ok(())));
    }
}

/// A later driver takes over: the memory is fenced already, and grants are opened anew.
#[test]
fn a_later_push_of_the_version_begins_in_the_same_call() {
    let scene = FillScene::begun();
    let (tells, grants) = scene.fenced();
    scene.write(&grants[0]);
    let later = PushNumber { driver: PUSH.driver + 1, number: 1 };
    let other = PushScene::sender(1);
    let words = other.state.push.drive().unwrap();
    scene.order(other.order(later, 1));
    let grants = loop {
        let PushWord::Report(word) = heard(&words) else { panic!("no report") };
        assert_eq!(word.report.push, later);
        if word.report.state == TargetState::Filling {
            break word.report.grants;
        }
    };
    assert!(grants.len() == 2 && scene.exports().grants() == 2, "{grants:?}");
    grants.iter().for_each(|grant| scene.write(grant));
    tells.recv_timeout(LONG).unwrap().unwrap();
    // The driver that it has taken over from learns of that, if it asks.
    scene.order(scene.driver.order(PUSH, 9));
    loop {
        if scene.report().report.push == later {
            break;
        }
    }
    drop(scene.end(Ok(())));
}

fn fill(target: &PushScene, order: &OrderWord) -> Fill {
    Fill::new(&target.state, order, Instant::now() + LONG).unwrap()
}

#[test]
fn an_order_of_another_version_or_plan_is_not_this_calls() {
    let (target, driver) = (PushScene::target(), PushScene::sender(0));
    let order = ordered(&driver);
    let later = |change: fn(&mut OrderWord)| {
        let mut word = driver.order(PushNumber { driver: 9, number: 1 }, 1);
        change(&mut word);
        word
    };
    for (word, taken) in [
        (later(|word| word.order.version.number += 1), false),
        (later(|word| word.order.version.epoch.0 += 1), false),
        (later(|word| word.parcels ^= 1), false),
        (later(|_| ()), true),
    ] {
        let mut fill = fill(&target, &order);
        fill.order(order.clone());
        fill.order(word);
        assert_eq!(fill.machine.report().push.driver, if taken { 9 } else { PUSH.driver });
        assert_eq!(fill.drivers.len(), 1 + usize::from(taken));
    }
    let mut failed = fill(&target, &order);
    failed.failed = Some("no room".to_owned());
    failed.order(order.clone());
    assert_eq!(failed.machine.report().push, PushNumber::default(), "it is over here");
    assert_eq!(failed.drivers[&PUSH.driver], driver.address(), "but its driver is told so");
}

#[test]
fn the_addresses_of_the_two_newest_drivers_are_kept() {
    let (target, one) = (PushScene::target(), PushScene::sender(0));
    let mut fill = fill(&target, &ordered(&one));
    for driver in [5, 3, 7, 4, 6, 7] {
        let mut word = one.order(PushNumber { driver, number: 1 }, 1);
        word.driver = format!("10.0.0.{driver}:1");
        fill.order(word);
    }
    let kept: Vec<(u64, &str)> = fill.drivers.iter().map(|(of, at)| (*of, at.as_str())).collect();
    assert_eq!(kept, [(6, "10.0.0.6:1"), (7, "10.0.0.7:1")]);
}

#[test]
fn there_is_no_fill_without_memory_or_by_another_plan() {
    let (target, driver) = (PushScene::target(), PushScene::sender(0));
    let until = Instant::now() + LONG;
    let refused = |word: &OrderWord| match Fill::new(&target.state, word, until) {
        Ok(_) => panic!("it was filled"),
        Err(error) => error.to_string(),
    };
    let order = ordered(&driver);
    let other = OrderWord { parcels: order.parcels ^ 1, ..order.clone() };
    assert!(refused(&other).contains("in different ways"));
    let half = OrderWord { base: BASE[..1].to_vec(), ..order.clone() };
    assert!(refused(&half).contains('w'), "no source has the other half: {}", refused(&half));
    target.state.release();
    assert!(refused(&order).contains("register memory"));
}

/// Nothing is said of a memory whose call has ended while it was compared.
#[test]
fn a_comparison_that_the_calls_end_breaks_off_says_nothing() {
    let (target, driver) = (PushScene::target(), PushScene::sender(0));
    let order = ordered(&driver);
    let mut fill = fill(&target, &order);
    fill.order(order);
    fill.compare(Generation(1));
    assert!(fill.compared.is_none());
    target.state.push.target.begin_fill();
    let plan = target.plan();
    let zeros = plan.target.fold(&vec![Digest::default(); plan.target.cells.len()]).held;
    fill.sums = [(0, zeros), (1, zeros)].into();
    fill.compare(Generation(1));
    assert!(fill.compared.is_some(), "of zeros each sum is nothing");
}
