//! A mixed load at a set rate, and the latency of its answers.
//!
//! Half of the operations are heartbeats, three tenths polls that find nothing newer, a tenth
//! `describe`, a twelfth `list`. The rest are publications of the version that all rollouts hold,
//! by trainers that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::Serialize;
use weightcast::wire::{self, call};

use super::HELD;
use super::crowd::{Crowd, CrowdGroup, latest};
use super::record::{LatencyFigures, Operation};
use super::session::HEARTBEATS_PER_LEASE;
use crate::base::program::ServerProcess;

/// How finely the load is spread over time.
const TICK: Duration = Duration::from_millis(1);
/// How long the last calls may take after the load has ended.
const LAST_CALLS: Duration = Duration::from_secs(30);
/// How many of a hundred operations are heartbeats.
const HEARTBEATS: f64 = 50.0;
/// How many of a hundred group calls are of each kind.
const TURNS: [(Operation, usize); 4] = [
    (Operation::Update, 60),
    (Operation::Describe, 20),
    (Operation::List, 17),
    (Operation::Publish, 3),
];

/// How the server bore the load.
#[derive(Debug, Serialize)]
pub(crate) struct Mixed {
    pub(crate) asked_per_s: f64,
    /// Operations answered per second.
    pub(crate) reached_per_s: f64,
    pub(crate) all: LatencyFigures,
    pub(crate) kinds: BTreeMap<Operation, LatencyFigures>,
    /// How late the load generator itself was, at the 99th percentile.
    pub(crate) generator_late_p99_ms: f64,
    /// Share of one core that the server used.
    pub(crate) server_cpu: f64,
    /// CPU microseconds of the server per operation.
    pub(crate) server_us_per_op: f64,
    /// Share of one core that the load generator used.
    pub(crate) load_cpu: f64,
    pub(crate) failed: u64,
}

/// Groups that have no call under way.
type Idle = Arc<Mutex<VecDeque<Arc<CrowdGroup>>>>;

/// Loads the server for a while.
pub(crate) async fn measure(
    crowd: &Crowd,
    server: &ServerProcess,
    rate: f64,
    lease: Duration,
    seconds: f64,
) -> Result<Mixed> {
    let sessions: Vec<_> = crowd.rollouts.iter().flat_map(|group| group.sessions.clone()).collect();
    let shards = crowd.rollouts[0].sessions.len() as f64;
    let by_themselves =
        sessions.len() as f64 * f64::from(HEARTBEATS_PER_LEASE) / lease.as_secs_f64();
    let beats = (rate * HEARTBEATS / 100.0 - by_themselves).max(0.0);
    let calls = (rate - by_themselves.max(rate * HEARTBEATS / 100.0)).max(0.0) / shards;
    let mut load = Load::new(crowd);
    crowd.record.take();
    let before = (server.cpu_seconds()?, crate::base::measure::cpu_seconds(std::process::id())?);
    let start = Instant::now();
    let (mut beaten, mut called, mut late) = (0_usize, 0_usize, Vec::new());
    for tick in 1.. {
        let due = start + TICK * tick;
        tokio::time::sleep_until(due.into()).await;
        late.push(due.elapsed().as_nanos() as u64);
        let now = due.duration_since(start).as_secs_f64();
        if now >= seconds {
            break;
        }
        while (beaten as f64) < now * beats {
            sessions[beaten * 7_919 % sessions.len()].heartbeat();
            beaten += 1;
        }
        while (called as f64) < now * calls {
            load.call(called);
            called += 1;
        }
    }
    let elapsed = start.elapsed().as_secs_f64();
    let taken = crowd.record.take();
    let cpu = (
        server.cpu_seconds()? - before.0,
        crate::base::measure::cpu_seconds(std::process::id())? - before.1,
    );
    ensure!(taken.failed == 0, "operations failed: {:?}", taken.failures);
    let all: Vec<u64> = taken.latencies.values().flatten().copied().collect();
    let operations = all.len() as f64;
    // Waits for the last calls, because a group makes one call at a time.
    load.drain().await?;
    Ok(Mixed {
        asked_per_s: rate,
        reached_per_s: operations / elapsed,
        all: LatencyFigures::of(all),
        kinds: taken
            .latencies
            .into_iter()
            .map(|(kind, all)| (kind, LatencyFigures::of(all)))
            .collect(),
        generator_late_p99_ms: LatencyFigures::of(late).p99_ms,
        server_cpu: cpu.0 / elapsed,
        server_us_per_op: cpu.0 * 1e6 / operations,
        load_cpu: cpu.1 / elapsed,
        failed: taken.failed,
    })
}

/// Hands out calls to groups that are idle.
struct Load {
    rollouts: Idle,
    trainers: Idle,
    groups: usize,
    turns: Vec<Operation>,
    published: u64,
}

impl Load {
    fn new(crowd: &Crowd) -> Self {
        let mut turns = vec![Operation::Update; TURNS.iter().map(|(_, count)| count).sum()];
        let rare = TURNS[1..].iter().flat_map(|(kind, count)| vec![*kind; *count]);
        let len = turns.len();
        // 37 and 100 have no common factor, so the rare kinds are spread out among the others.
        rare.enumerate().for_each(|(i, kind)| turns[i * 37 % len] = kind);
        // The first trainer keeps the publication that the rollouts have read.
        let trainers: VecDeque<_> = crowd.trainers[1..].iter().cloned().collect();
        let rollouts: VecDeque<_> = crowd.rollouts.iter().cloned().collect();
        let groups = trainers.len() + rollouts.len();
        let idle = |groups| Arc::new(Mutex::new(groups));
        Self { rollouts: idle(rollouts), trainers: idle(trainers), groups, turns, published: 0 }
    }

    /// Starts call number `number`. Skips the call if no group is idle: the load then falls short
    /// of its rate.
    fn call(&mut self, number: usize) {
        let kind = self.turns[number % self.turns.len()];
        let idle = if kind == Operation::Publish { &self.trainers } else { &self.rollouts };
        let Some(group) = lock(idle).pop_front() else { return };
        let back = Arc::clone(idle);
        self.published += u64::from(kind == Operation::Publish);
        let generation = self.published;
        tokio::spawn(async move {
            match kind {
                Operation::Publish => come_and_go(&group, generation).await,
                _ => drop(group.call(kind, call_of(kind)).await),
            }
            lock(&back).push_back(group);
        });
    }

    /// Waits until no group has a call under way.
    async fn drain(&self) -> Result<()> {
        let until = Instant::now() + LAST_CALLS;
        loop {
            let back = lock(&self.rollouts).len() + lock(&self.trainers).len();
            if back == self.groups {
                return Ok(());
            }
            let busy = self.groups - back;
            ensure!(Instant::now() < until, "{busy} groups had no answer within {LAST_CALLS:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn call_of(kind: Operation) -> call::Call {
    match kind {
        Operation::Update => call::Call::Update(wire::Update {
            selector: latest(),
            allow_rollback: false,
            staged: false,
        }),
        Operation::Describe => call::Call::Describe(wire::Describe { selector: latest() }),
        _ => call::Call::List(wire::List {}),
    }
}

/// Publishes the version that all rollouts hold, and unpublishes it at once.
async fn come_and_go(group: &CrowdGroup, generation: u64) {
    if group.publish(HELD, generation).await.is_ok() {
        group.call(Operation::Unpublish, call::Call::Unpublish(wire::Unpublish {})).await;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
