//! A thousand groups ask for `latest` at once while versions appear. No group may wait long, and no
//! group may be split between versions.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Serialize;
use tokio::task::JoinSet;
use weightcast::wire::{self, answer::Answer, call};

use super::crowd::{Crowd, CrowdGroup, latest};
use super::record::{LatencyFigures, Operation};

/// All shards ask within this time, each at a moment of its own.
const WITHIN: Duration = Duration::from_millis(100);

/// How a herd was answered.
#[derive(Debug, Serialize)]
pub(crate) struct Herd {
    /// The call: `describe`, or `update` with all of its replications.
    pub(crate) call: Operation,
    pub(crate) groups: usize,
    pub(crate) shards: usize,
    /// From the start of the herd until the last answer.
    pub(crate) seconds: f64,
    pub(crate) latency: LatencyFigures,
    /// Groups whose shards got different answers.
    pub(crate) split: usize,
    /// How many versions groups got. A herd that got one version alone has tested nothing.
    pub(crate) versions: usize,
    pub(crate) failed: u64,
}

/// All rollouts ask, while the trainers but the first publish versions above `above`, one after the
/// other.
pub(crate) async fn measure(crowd: &Crowd, kind: Operation, above: u64) -> Result<Herd> {
    let (first, others) = crowd.trainers[1..].split_first().context("a herd has two trainers")?;
    // Published before the first rollout asks, so that every update has something to read.
    first.publish(above + 1, above + 1).await?;
    crowd.record.take();
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for (index, group) in crowd.rollouts.iter().enumerate() {
        tasks.spawn(ask(Arc::clone(group), kind, start, index as u64));
    }
    tasks.spawn(publish_in_turn(others.to_vec(), start, above + 1));
    let (mut split, mut versions) = (0, BTreeSet::new());
    while let Some(got) = tasks.join_next().await {
        let got: BTreeSet<u64> = got.context("a task panicked")??.into_iter().collect();
        split += usize::from(got.len() > 1);
        versions.extend(got);
    }
    let seconds = start.elapsed().as_secs_f64();
    let mut taken = crowd.record.take();
    Ok(Herd {
        call: kind,
        groups: crowd.rollouts.len(),
        shards: crowd.rollouts[0].sessions.len(),
        seconds,
        latency: LatencyFigures::of(taken.latencies.remove(&kind).unwrap_or_default()),
        split,
        versions: versions.len(),
        failed: taken.failed,
    })
}

/// Trainers publish one after the other, in the order of their versions, since a lower one would be
/// refused.
async fn publish_in_turn(
    trainers: Vec<Arc<CrowdGroup>>,
    start: Instant,
    above: u64,
) -> Result<Vec<u64>> {
    let publishers = trainers.len() as u32 + 1;
    for (turn, trainer) in (1..).zip(trainers) {
        tokio::time::sleep_until((start + WITHIN * turn / publishers).into()).await;
        let version = above + u64::from(turn);
        trainer.publish(version, version).await?;
    }
    Ok(Vec::new())
}

/// Every shard asks at a moment of its own. Returns the versions that the shards got.
async fn ask(
    group: Arc<CrowdGroup>,
    kind: Operation,
    start: Instant,
    index: u64,
) -> Result<Vec<u64>> {
    let mut shards = JoinSet::new();
    for shard in 0..group.sessions.len() {
        let group = Arc::clone(&group);
        // Shards of one group ask nearly at the same time, as workers of one job do.
        let share = 0.9 * spread(index) + 0.1 * spread(!(index * 4_096 + shard as u64));
        let at = start + WITHIN.mul_f64(share);
        shards.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            let sent = Instant::now();
            let reply = group.sessions[shard].call(question(kind)).await;
            group.answered(kind, sent, reply.ok())
        });
    }
    let mut versions = Vec::new();
    while let Some(answer) = shards.join_next().await {
        let answer = answer.context("a task panicked")?.map_err(anyhow::Error::msg)?;
        versions.push(version_of(answer).context("an answer without a version")?);
    }
    Ok(versions)
}

/// A number from 0 to 1, the same in every run.
fn spread(index: u64) -> f64 {
    let mixed = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (mixed >> 40) as f64 / f64::from(1 << 24)
}

fn question(kind: Operation) -> call::Call {
    match kind {
        Operation::Describe => call::Call::Describe(wire::Describe { selector: latest() }),
        _ => call::Call::Update(wire::Update {
            selector: latest(),
            allow_rollback: false,
            staged: false,
        }),
    }
}

fn version_of(answer: Answer) -> Option<u64> {
    match answer {
        Answer::Described(described) => described.version.map(|v| v.number),
        Answer::Committed(committed) => committed.version.map(|v| v.number),
        Answer::Unchanged(unchanged) => unchanged.held.map(|v| v.number),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_the_version_that_it_speaks_of() {
        let version = Some(wire::Version { epoch: 3, number: 7 });
        for (answer, number) in [
            (Answer::Described(wire::Described { version, ..Default::default() }), Some(7)),
            (Answer::Committed(wire::Committed { version, ..Default::default() }), Some(7)),
            (Answer::Unchanged(wire::Unchanged { held: version }), Some(7)),
            (Answer::Unchanged(wire::Unchanged { held: None }), None),
            (Answer::Described(wire::Described::default()), None),
        ] {
            assert_eq!(version_of(answer), number);
        }
    }

    #[test]
    fn what_is_asked_is_of_its_kind() {
        assert!(matches!(question(Operation::Describe), call::Call::Describe(_)));
        let asked = question(Operation::Update);
        let plain = matches!(&asked, call::Call::Update(u) if !u.allow_rollback && !u.staged);
        assert!(plain, "{asked:?}");
    }

    #[test]
    fn a_herd_comes_spread_over_the_whole_time() {
        let mut tenths = [0; 10];
        for index in 0..1_000 {
            let share = spread(index);
            assert!((0.0..1.0).contains(&share));
            tenths[(share * 10.0) as usize] += 1;
        }
        assert!(tenths.iter().all(|count| (60..140).contains(count)), "{tenths:?}");
    }
}
