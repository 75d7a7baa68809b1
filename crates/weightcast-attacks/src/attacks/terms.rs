//! Terms and epochs that never were, told to a server that cannot know better.

use std::time::Duration;

use anyhow::Result;
use rustix::process::{Pid, Signal, kill_process};

use super::identities::{Forger, Ghost};
use crate::attacker::control::open;
use crate::attacker::wire::{Announce, Holding, Open, Proved, Register, Role, Ticket, Version};
use crate::scene::Scene;
use crate::scene::victims::Honest;

/// Honest workers that move one version at a time.
struct Pair {
    trainer: Honest,
    rollout: Honest,
    number: u64,
}

impl Pair {
    fn open(scene: &mut Scene) -> Result<Self> {
        let (trainer, rollout) = (scene.trainer("policy")?, scene.rollout("policy", "rollout")?);
        scene.watch(&trainer);
        scene.watch(&rollout);
        Ok(Self { trainer, rollout, number: 0 })
    }

    /// One version, checked. What is wrong is the attack's success.
    fn round(&mut self, scene: &mut Scene, when: &str) -> Option<u64> {
        self.number += 1;
        let published = self.trainer.ask(&format!("publish {}", self.number));
        let updated = self.rollout.ask("update 60000");
        let right = updated.right && updated.version.is_some_and(|(_, n)| n == self.number);
        scene.note(format!("{when}: publish {:.0} ms, update {:.0} ms", published.ms, updated.ms));
        scene.expect(published.ok, || format!("{when}: publish failed: {}", published.said()));
        scene.expect(right, || format!("{when}: update came to {updated:?}"));
        published.version.map(|(epoch, _)| epoch)
    }

    fn keep(self, scene: &mut Scene) {
        scene.keep(self.trainer);
        scene.keep(self.rollout);
    }
}

pub(super) fn last_term(scene: &mut Scene) -> Result<()> {
    let mut pair = Pair::open(scene)?;
    pair.round(scene, "before");
    let control = scene.control()?;
    let (forger, _real) = Forger::new(scene, &control)?;
    let terms = [forger.term() + 1, 1 << 61, (1 << 62) - 1, 1 << 62, u64::MAX - 1, u64::MAX];
    for term in terms {
        for proof in forger.proofs(term) {
            let acts = control.probe(proof.clone());
            scene.note(format!("probed; it acts in term {acts:?}"));
            // The same, in an open.
            let ticket = Ticket { proof: Some(proof), ..Ticket::default() };
            let late = open("ghosts", "late", Role::Rollout);
            Ghost::enter(scene, &control, Open { ticket: Some(ticket), ..late })?;
        }
    }
    pair.round(scene, "after the probe");
    scene.restart()?;
    pair.round(scene, "after the restart");
    let again = scene.rollout("policy", "newcomer");
    scene.expect(again.is_ok(), || "nobody can open after the restart".to_owned());
    again.into_iter().for_each(|newcomer| scene.keep(newcomer));
    pair.keep(scene);
    Ok(())
}

/// Ghosts that say that the last epoch has begun.
fn announce_last_epoch(scene: &mut Scene, forger: &Forger) -> Result<()> {
    let control = scene.control()?;
    let version = Some(Version { epoch: u64::MAX, number: 7 });
    let catalog = vec![7; 16];
    for (i, role) in [(0, Role::Trainer), (1, Role::Rollout)] {
        let seat = open("policy", &format!("ghost-{i}"), role);
        let ticket = Ticket {
            incarnation: Some(forger.number(5_000 + i)),
            epoch: u64::MAX,
            held: Some(Proved { version, catalog: catalog.clone(), sum: None }),
            ..Ticket::default()
        };
        for open in forger.opens(&seat, &ticket) {
            let seat = Ghost::enter(scene, &control, open)?;
            seat.announce(Announce {
                generation: 1,
                registration: Some(Register { layout: vec![7; 16], export: 7, bytes: 7 }),
                held: Some(Holding { version, catalog: catalog.clone(), ..Holding::default() }),
                ..Announce::default()
            });
        }
    }
    Ok(())
}

pub(super) fn last_epoch(scene: &mut Scene) -> Result<()> {
    let mut pair = Pair::open(scene)?;
    let epoch = pair.round(scene, "before");
    let (forger, _real) = Forger::new(scene, &scene.control()?)?;
    announce_last_epoch(scene, &forger)?;
    pair.round(scene, "after it was announced at a settled server");
    scene.restart()?;
    announce_last_epoch(scene, &forger)?;
    pair.round(scene, "after it was announced at one that has restarted");
    // The next run is newer than all before.
    let Pair { mut trainer, rollout, number } = pair;
    trainer.ask("close");
    drop(trainer);
    let mut settings = scene.worker("policy", "trainer", "trainer");
    settings.new_epoch = true;
    let next = scene.start(settings);
    scene.expect(next.is_ok(), || match &next {
        Err(error) => format!("no new run: {error:#}"),
        Ok(_) => String::new(),
    });
    if let Ok(trainer) = next {
        let mut pair = Pair { trainer, rollout, number };
        let later = pair.round(scene, "a new run");
        scene.note(format!("epochs: {epoch:?}, then {later:?}"));
        scene.expect(later > epoch, || format!("a new run has epoch {later:?} after {epoch:?}"));
        scene.expect(later.is_none_or(|later| later < 1 << 40), || {
            format!("epochs are nearly used up: {later:?}")
        });
        pair.keep(scene);
    }
    Ok(())
}

pub(super) fn guessed_incarnation(scene: &mut Scene) -> Result<()> {
    let mut pair = Pair::open(scene)?;
    pair.round(scene, "before");
    let (forger, _real) = Forger::new(scene, &scene.control()?)?;
    // The trainer is slow to notice that the server has restarted.
    let trainer = Pid::from_raw(pair.trainer.id() as i32).expect("a process id");
    kill_process(trainer, Signal::STOP)?;
    scene.restart()?;
    let control = scene.control()?;
    let mut inside = 0;
    let mut seats = Vec::new();
    for guess in -4..4 {
        let seat = open("policy", "trainer", Role::Trainer);
        let ticket = Ticket { incarnation: Some(forger.number(guess)), ..Ticket::default() };
        for open in forger.opens(&seat, &ticket) {
            let seat = Ghost::enter(scene, &control, open)?;
            inside += usize::from(seat.inside);
            seat.announce(Announce { generation: 1, ..Announce::default() });
            seats.push(seat);
        }
    }
    std::thread::sleep(Duration::from_secs(1));
    kill_process(trainer, Signal::CONT)?;
    scene.note(format!("{inside} of {} guesses were let in", seats.len()));
    pair.round(scene, "after the restart");
    pair.keep(scene);
    Ok(())
}
