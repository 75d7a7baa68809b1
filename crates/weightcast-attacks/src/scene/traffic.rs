//! Honest traffic beside an attack: a trainer publishes, a rollout updates, each step is checked
//! and timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

use crate::scene::victims::{Honest, WorkerAnswer};

/// The pause between two versions, so that honest traffic does not load the machine as an attack would.
const REST: Duration = Duration::from_millis(50);

/// How long calls took, in milliseconds.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Latency {
    pub(crate) calls: usize,
    pub(crate) median: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

impl Latency {
    pub(crate) fn of(mut took: Vec<f64>) -> Self {
        took.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = (took.len() as f64 * share) as usize;
            took.get(place.min(took.len().saturating_sub(1))).copied().unwrap_or(0.0)
        };
        Self { calls: took.len(), median: at(0.5), p99: at(0.99), max: at(1.0) }
    }
}

/// How an attack was felt by honest workers.
#[derive(Default)]
pub(crate) struct Felt {
    pub(crate) publish: Vec<f64>,
    pub(crate) update: Vec<f64>,
    /// Everything that was not as it should be.
    pub(crate) wrong: Vec<String>,
}

/// Honest traffic, until it is stopped.
pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    thread: JoinHandle<(Honest, Honest, Felt)>,
}

impl Traffic {
    pub(crate) fn start(trainer: Honest, rollout: Honest) -> Self {
        let (stop, rounds) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let thread = std::thread::spawn({
            let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
            move || pump(trainer, rollout, &stop, &rounds)
        });
        Self { stop, rounds, thread }
    }

    /// Waits until so many more versions have gone through, or the traffic has stopped by itself.
    pub(crate) fn wait(&self, more: usize) {
        let until = self.rounds() + more;
        while self.rounds() < until && !self.is_over() {
            std::thread::sleep(REST);
        }
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Whether the traffic has stopped by itself, because something was wrong.
    pub(crate) fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    pub(crate) fn finish(self) -> (Honest, Honest, Felt) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("honest traffic does not panic")
    }
}

fn pump(
    mut trainer: Honest,
    mut rollout: Honest,
    stop: &AtomicBool,
    rounds: &AtomicUsize,
) -> (Honest, Honest, Felt) {
    let mut felt = Felt::default();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) && felt.wrong.is_empty() {
        number += 1;
        let published = trainer.ask(&format!("publish {number}"));
        felt.publish.push(published.ms);
        felt.note(&trainer, "publish", &published);
        if !published.ok {
            break;
        }
        let updated = rollout.ask("update 60000");
        felt.update.push(updated.ms);
        felt.note(&rollout, "update", &updated);
        let expected = updated.version.is_some_and(|(_, got)| got == number);
        if updated.ok && !(expected && updated.right) {
            felt.wrong.push(format!("version {number} was published, and {updated:?} came"));
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(REST);
    }
    (trainer, rollout, felt)
}

impl Felt {
    fn note(&mut self, who: &Honest, call: &str, reply: &WorkerAnswer) {
        if !reply.ok {
            self.wrong.push(format!("{} could not {call}: {}", who.name(), reply.said()));
        }
    }
}
