//! The steps of a push as a person would tell them.

use super::PushBounds;
use super::parts::{PushWire, target_id};
use super::steps::PushStep;
use super::world::PushState;
use crate::invariants::Broken;
use crate::search::ExploredWorld;

impl ExploredWorld for PushBounds {
    fn broken(state: &PushState) -> Option<&Broken> {
        state.broken.as_ref()
    }

    fn breaks_now(&self, state: &PushState, invariant: &str) -> bool {
        state.breaks_now(self, invariant)
    }

    fn line(&self, before: &PushState, step: PushStep, _after: &PushState) -> String {
        let wire = |hash| before.wires.get(&hash).map(|wire| told(wire)).unwrap_or_default();
        let target = |place: usize| before.targets[place].id;
        let by = |driver: usize| format!("driver {}", driver + 1);
        let sender = |place: usize| format!("sender {}", place + 1);
        let early = |early: bool| if early { ", early" } else { "" };
        match step {
            PushStep::Arrive(hash) => format!("there arrives {}", wire(hash)),
            PushStep::Repeat(hash) => {
                format!("there arrives, not for the last time, {}", wire(hash))
            }
            PushStep::Lose(hash) => format!("lost: {}", wire(hash)),
            PushStep::GiveUp(hash) => format!("its sender gives up {}", wire(hash)),
            PushStep::Flip(hash) => format!("a bit flips in {}", wire(hash)),
            PushStep::Pause(at) => format!("{} has stopped serving", target(at)),
            PushStep::Compare(at, _) => {
                format!("{} hears what its comparison has found", target(at))
            }
            PushStep::Write(at, job) => {
                let grant = &before.senders[at].jobs[job].grant;
                format!("{} writes at {} under grant {}", sender(at), grant.target, grant.number)
            }
            PushStep::DriverTimer(at, is_early) => {
                format!("a timer of {} goes off{}", by(at), early(is_early))
            }
            PushStep::TargetTimer(at, is_early) => {
                format!("the lease of {} is over{}", target(at), early(is_early))
            }
            PushStep::Join(driver, at) => {
                format!("{} joins the push of {}", target(at), by(driver))
            }
            PushStep::LearnTarget(driver, at) => {
                format!("{} learns that a target at place {at} is dead", by(driver))
            }
            PushStep::LearnSender(driver, at) => {
                format!("{} learns that {} is dead", by(driver), sender(at))
            }
            PushStep::LearnHolder(driver, at) => {
                format!("{} learns that {} holds the version", by(driver), sender(at))
            }
            PushStep::MoveOn(at, _) => {
                let next = before.senders[at].memory + 1;
                format!("the memory of {} becomes version {next}", sender(at))
            }
            PushStep::DriverDies(at) => format!("{} dies", by(at)),
            PushStep::DriverComes => format!("{} comes", by(before.drivers.len())),
            PushStep::SenderDies(at) => format!("{} dies", sender(at)),
            PushStep::Stall(at) => format!("{} stands still", sender(at)),
            PushStep::GoOn(at) => format!("{} goes on", sender(at)),
            PushStep::TargetDies(at) => format!("{} dies", target(at)),
            PushStep::TargetStarts(at) => {
                let next = target_id(at, super::parts::life_of(target(at)) + 1);
                format!("{next} starts where {} was", target(at))
            }
            PushStep::Sleep(at) => format!("{} gives its memory away", target(at)),
            PushStep::Wake(at) => format!("{} has memory again", target(at)),
            PushStep::Cancel(at) => format!("the push of {} is cancelled", by(at)),
            PushStep::Leave(driver, at) => {
                format!("{} leaves the push of {}", target(at), by(driver))
            }
        }
    }
}

/// What is under way, in a few words.
fn told(wire: &PushWire) -> String {
    match wire {
        PushWire::Order(order) => {
            let (push, revision) = (order.push, order.revision);
            format!("order {push}/{revision} for {}: {:?}", order.target, order.command)
        }
        PushWire::Report { driver, report } => {
            let (state, written, push) = (report.state.name(), &report.written, report.push);
            let word = format!("{state}, heard {push}/{}, written {written:?}", report.revision);
            format!("the word of {} to driver {driver}: {word}", report.target)
        }
        PushWire::Grant(grant) => {
            let (number, target, parcels) = (grant.number, grant.target, &grant.parcels);
            format!("grant {number} of {target} for {}: {parcels:?}", grant.sender)
        }
        PushWire::Word(word) => {
            let (grant, target) = (word.grant, word.target);
            format!(
                "the word of {} to {target}: wrote {:?} under grant {grant}",
                word.sender, word.parcels
            )
        }
        PushWire::Refusal(refused) => {
            let (sender, grant, target) = (refused.sender, refused.grant, refused.target);
            format!("the word of {sender}: {:?}, grant {grant} of {target}", refused.refusal)
        }
        PushWire::Write(write) => {
            let (target, grant, parcel) = (write.target, write.grant, write.parcel);
            let content = if write.content == super::parts::TORN { 0 } else { write.content };
            let of = format!("parcel {parcel} of version {content}, grant {grant}");
            format!("a write of sender {} at {target}: {of}", write.from + 1)
        }
    }
}
