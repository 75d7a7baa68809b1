//! Grants that come in, what is written under them, and what is said of that.

use std::sync::mpsc::Receiver;

use weightcast_protocol::push::{PushGrant, PushNumber, SendRefusal, SendRefused};
use weightcast_protocol::{ContentDigest, Generation, Version};
use weightcast_transport::ExportId;

use super::*;
use crate::client::push::desk::DriverWord;
use crate::client::push::samples::VERSION;
use crate::client::push::scene::*;
use crate::client::push::target::TargetEvent;

const PUSH: PushNumber = PushNumber { driver: 3, number: 2 };

/// A sender, a target with open grants for it, and a driver.
struct SendScene {
    sender: PushScene,
    target: PushScene,
    driver: PushScene,
    /// What the target hears, and the driver.
    written: Receiver<TargetEvent>,
    words: Receiver<DriverWord>,
}

impl SendScene {
    fn new() -> Self {
        let [sender, driver] = [(), ()].map(|()| PushScene::sender(0));
        let target = PushScene::target();
        let written = target.state.push.target.open().unwrap();
        target.state.push.target.begin_fill();
        let words = driver.state.push.drive().unwrap();
        Self { sender, target, driver, written, words }
    }

    /// A grant over these parcels that the target opens; the driver's word about it.
    fn granted(&self, number: u64, parcels: impl IntoIterator<Item = u32>) -> GrantWord {
        let grant = PushGrant {
            push: PUSH,
            target: TARGET,
            number,
            generation: Generation(5),
            sender: SENDERS[0],
            version: VERSION,
            parcels: parcels.into_iter().collect(),
        };
        let state = &self.target.state;
        let regions = [self.target.region.clone()];
        let (exports, auth) = (state.exports.exports(), &state.routes.auth);
        let room = &state.push.target.opened;
        assert_eq!(room.open(exports, auth, &grant, &regions, LONG), Ok(true));
        let opened = room.all().into_iter().find(|of| of.number == number).unwrap();
        GrantWord {
            grant,
            opened,
            at: self.target.address(),
            driver: self.driver.address(),
            base: BASE.to_vec(),
            layouts: vec![WHOLE],
            shard: 0,
            parcels: self.driver.plan().fingerprint,
        }
    }

    fn grant(&self, word: &GrantWord) -> bool {
        grant(&self.sender.state, word.clone())
    }

    fn sending(&self) -> std::sync::MutexGuard<'_, SendingState> {
        self.sender.state.push.sending.state.lock().unwrap()
    }

    /// Threads that write, and grants that wait for one.
    fn counts(&self) -> (usize, usize) {
        let sending = self.sending();
        (sending.writers, sending.waiting.len())
    }

    /// The next word of the sender to its target.
    #[track_caller]
    fn written(&self) -> WrittenWord {
        match self.written.recv_timeout(LONG) {
            Ok(TargetEvent::Written(word)) => word,
            _ => panic!("nothing was written"),
        }
    }

    /// The next word of the sender to the driver.
    #[track_caller]
    fn refused(&self) -> SendRefused {
        match heard(&self.words) {
            PushWord::Refused(word) => word,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until no thread writes.
    #[track_caller]
    fn idle(&self) {
        let until = Instant::now() + LONG;
        while self.counts().0 > 0 {
            assert!(Instant::now() < until, "a thread goes on");
            thread::yield_now();
        }
    }
}

#[test]
fn what_a_grant_allows_is_written_and_told_with_its_sums() {
    let scene = SendScene::new();
    let word = scene.granted(1, [0]);
    assert!(scene.grant(&word));
    let told = scene.written();
    let written = (told.written.target, told.written.grant, told.written.sender);
    assert_eq!((written, &told.written.parcels), ((TARGET, 1, SENDERS[0]), &[0].into()));
    assert_eq!(scene.target.region.to_vec()[..8], content()[..8]);
    assert_eq!(scene.target.region.to_vec()[8..], [0; 8], "the other half is another's");
    let (registration, _) = scene.target.state.current().unwrap();
    // The other half is zero, which sums to nothing.
    assert_eq!(told.sums, [(0, registration.fold(&registration.digest_all()).held)].into());
    // The word may have been lost: the grant comes again, and is told again, and nothing is written twice.
    scene.idle();
    scene.target.region.write_at(0, &[0; 8]).unwrap();
    assert!(scene.grant(&word));
    assert_eq!(scene.written(), told);
    assert_eq!(scene.counts(), (0, 0));
    assert_eq!(scene.target.region.to_vec(), [0; BYTES as usize]);
}

/// Another rank has heard first that the trainer's version is published.
#[test]
fn what_comes_before_its_version_is_written_once_that_is_held() {
    let scene = SendScene::new();
    let mut word = scene.granted(1, [0]);
    word.grant.version.number += 1;
    scene.sender.holds(None);
    assert!(scene.grant(&word));
    assert_eq!(scene.counts(), (0, 0));
    scene.sender.holds(Some(word.grant.version));
    assert_eq!(scene.written().written.grant, 1, "and nothing was refused");
    assert_eq!(scene.target.region.to_vec()[..8], content()[..8]);
    assert!(scene.words.try_recv().is_err());
}

#[test]
fn a_thread_that_ends_is_counted_off() {
    let scene = SendScene::new();
    // The threads wait for the memory.
    let reading = scene.sender.state.push.sending.reading.write().unwrap();
    let grants: Vec<GrantWord> =
        (1..=PUSH_WRITERS as u64 + 2).map(|number| scene.granted(number, [0])).collect();
    for (number, word) in (1..).zip(&grants) {
        assert!(scene.grant(word));
        assert_eq!(scene.sending().writers, PUSH_WRITERS.min(number));
    }
    drop(reading);
    let told: std::collections::BTreeSet<u64> =
        grants.iter().map(|_| scene.written().written.grant).collect();
    assert_eq!(told.len(), grants.len());
    scene.idle();
    assert!(scene.sending().waiting.is_empty());
    // So the next grant has a thread.
    assert!(scene.grant(&scene.granted(9, [0])));
    assert_eq!(scene.written().written.grant, 9);
    scene.idle();
    // One that ends is one less, and it ends where nothing waits.
    scene.sending().writers = 3;
    write_all(&scene.sender.state);
    assert_eq!(scene.sending().writers, 2);
    scene.sending().waiting.push_back((TARGET, 77));
    write_all(&scene.sender.state);
    assert_eq!(scene.counts(), (1, 0));
}

#[test]
fn what_cannot_be_written_is_refused_to_the_driver() {
    type Change = fn(&mut GrantWord);
    let cases: [(Change, SendRefusal); 8] = [
        (|word| word.grant.version.number -= 1, SendRefusal::NotHeld),
        (|word| word.base[1] = ContentDigest([7; 16]), SendRefusal::Failed),
        (|word| word.parcels ^= 1, SendRefusal::Failed),
        (|word| word.shard = 1, SendRefusal::Failed),
        (|word| word.grant.parcels = [1].into(), SendRefusal::Failed),
        (|word| word.grant.parcels = [2].into(), SendRefusal::Failed),
        (|word| word.at = "no port".to_owned(), SendRefusal::Failed),
        // The secret is another's.
        (|word| word.opened.nonce[0] ^= 1, SendRefusal::Failed),
    ];
    let scene = SendScene::new();
    for (number, (change, refusal)) in (1..).zip(cases) {
        let mut word = scene.granted(number, [0]);
        change(&mut word);
        assert!(scene.grant(&word));
        let refused = scene.refused();
        assert_eq!((refused.refusal, refused.grant), (refusal, number), "case {number}");
        assert_eq!((refused.push, refused.target, refused.sender), (PUSH, TARGET, SENDERS[0]));
        assert!(!scene.sending().uses.contains_key(&(TARGET, number)), "it is forgotten");
    }
    assert_eq!(scene.target.region.to_vec(), [0; BYTES as usize]);
    scene.sender.holds(None);
    assert!(scene.grant(&scene.granted(20, [0])));
    assert_eq!(scene.refused().refusal, SendRefusal::NotHeld);
    scene.idle();
}

#[test]
fn a_grant_for_somebody_else_is_nobodys() {
    let scene = SendScene::new();
    let mut word = scene.granted(1, [0]);
    word.grant.sender = SENDERS[1];
    assert!(scene.grant(&word));
    assert!(scene.sending().uses.is_empty());
    assert_eq!(scene.counts().1, 0);
    scene.sender.state.release();
    let mut early = scene.granted(3, [0]);
    early.grant.version.number += 1;
    for word in [scene.granted(2, [0]), early.clone()] {
        assert!(!scene.grant(&word), "no memory is registered");
    }
    assert!(scene.sending().uses.is_empty());
    assert_eq!(scene.sending().early.due(early.grant.version), []);
}

/// Whatever is written when the memory is to change is cut off, and its drivers are told.
#[test]
fn nothing_is_read_once_the_memory_is_withdrawn() {
    let scene = SendScene::new();
    withdraw(&scene.sender.state); // nothing has come yet
    let reading = scene.sender.state.push.sending.reading.write().unwrap();
    assert!(scene.grant(&scene.granted(1, [0])) && scene.grant(&scene.granted(2, [0])));
    let cancel = Arc::clone(&scene.sending().cancel);
    let state = Arc::clone(&scene.sender.state);
    let withdrawn = thread::spawn(move || withdraw(&state));
    let grants = [scene.refused(), scene.refused()];
    assert!(grants.iter().all(|of| of.refusal == SendRefusal::NotHeld));
    assert_eq!(grants.map(|of| of.grant), [1, 2]);
    assert!(!withdrawn.is_finished(), "it waits for who reads the memory");
    drop(reading);
    withdrawn.join().unwrap();
    scene.idle();
    assert!(cancel.load(Ordering::Acquire));
    assert_eq!(scene.target.region.to_vec(), [0; BYTES as usize]);
    {
        let sending = scene.sending();
        assert!(sending.machine.is_none() && sending.uses.is_empty());
        assert!(!sending.cancel.load(Ordering::Acquire), "for those that come next");
    }
    // The version is held again: it is written again.
    assert!(scene.grant(&scene.granted(3, [0])));
    assert_eq!(scene.written().written.grant, 3);
}

/// Whoever reads the memory is waited for.
#[test]
fn memory_is_withdrawn_once_nobody_reads_it() {
    let scene = SendScene::new();
    assert!(scene.grant(&scene.granted(1, [0])));
    scene.written();
    scene.idle();
    let room = &scene.sender.state.push.sending;
    let reading = room.reading.read().unwrap();
    let state = Arc::clone(&scene.sender.state);
    let withdrawn = thread::spawn(move || withdraw(&state));
    // Whoever comes later waits behind the one who withdraws.
    while !withdrawn.is_finished() && room.reading.try_read().is_ok() {
        thread::yield_now();
    }
    assert!(!withdrawn.is_finished());
    drop(reading);
    withdrawn.join().unwrap();
}

/// A write that is under way ends when the memory is to change.
#[test]
fn a_write_heeds_the_word_to_end() {
    let scene = SendScene::new();
    scene.sending().cancel.store(true, Ordering::Release);
    assert!(scene.grant(&scene.granted(1, [0])));
    assert_eq!(scene.refused().refusal, SendRefusal::Failed);
    assert_eq!(scene.target.region.to_vec(), [0; BYTES as usize]);
    scene.idle();
}

#[test]
fn a_grant_may_be_used_while_it_is_the_machines_and_the_memory_is_the_same() {
    let scene = SendScene::new();
    let reading = scene.sender.state.push.sending.reading.write().unwrap();
    assert!(scene.grant(&scene.granted(1, [0])));
    let state = &scene.sender.state;
    let (registration, cancel) = may_read(state, (TARGET, 1)).expect("it is open");
    assert!(Arc::ptr_eq(&registration, &state.current().unwrap().0));
    assert!(Arc::ptr_eq(&cancel, &scene.sending().cancel));
    assert!(may_read(state, (TARGET, 2)).is_none());
    let again = (*registration).clone();
    state.register(again.clone(), ExportId(SENDERS[0].0 + 1));
    assert!(may_read(state, (TARGET, 1)).is_none(), "other memory");
    state.register(again, ExportId(SENDERS[0].0));
    assert!(may_read(state, (TARGET, 1)).is_some());
    drop(reading);
    assert_eq!(scene.written().written.grant, 1);
    scene.idle();
}

/// The machine is that of the memory that is registered, and holds what the session holds.
#[test]
fn a_machine_is_of_the_memory_and_holds_what_is_held() {
    let scene = PushScene::sender(0);
    let mut sending = SendingState::default();
    let holds = |sending: &mut SendingState| machine(sending, &scene.state).map(|of| of.holds());
    assert_eq!(holds(&mut sending), Some(Some(VERSION)));
    let next = Version { number: VERSION.number + 1, ..VERSION };
    for held in [Some(next), None, Some(VERSION)] {
        scene.holds(held);
        assert_eq!(holds(&mut sending), Some(held));
        assert_eq!(sending.machine.as_ref().unwrap().0, SENDERS[0]);
    }
    let (registration, _) = scene.state.current().unwrap();
    scene.state.register((*registration).clone(), ExportId(70));
    assert_eq!(holds(&mut sending), Some(Some(VERSION)));
    assert_eq!(sending.machine.as_ref().unwrap().0, SenderId(70));
    scene.state.release();
    assert_eq!(holds(&mut sending), None);
}

/// A later push of the target takes the place of an earlier one, whose grants are closed there.
#[test]
fn grants_of_an_earlier_push_are_forgotten() {
    let scene = SendScene::new();
    let reading = scene.sender.state.push.sending.reading.write().unwrap();
    assert!(scene.grant(&scene.granted(1, [0])));
    let mut word = scene.granted(2, [0]);
    word.grant.push.number += 1;
    assert!(scene.grant(&word));
    let uses: Vec<GrantPlace> = scene.sending().uses.keys().copied().collect();
    assert_eq!(uses, [(TARGET, 2)]);
    drop(reading);
    assert_eq!(scene.written().written.grant, 2);
    scene.idle();
}
