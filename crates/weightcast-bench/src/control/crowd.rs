//! Many groups of sessions on one server, connected and registered.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;
use weightcast::wire::{self, call, selector};

use super::record::{LatencyRecord, Operation};
use super::session::{LightSession, LoadReply, Retries, SessionIdentity, ShardIdentity};

/// Connections that are made at a time. The server lets in 256 strangers.
const CONNECTING: usize = 128;
const PAUSE: Duration = Duration::from_millis(50);
const RETRIES: Retries = Retries { tries: 21, pause: PAUSE, longest_pause: PAUSE };
/// Name of the logical tensors of every version.
pub(crate) const CATALOG: [u8; 16] = [7; 16];
pub(crate) const MODEL: &str = "bench.control";

/// A call's answer, or the error in words.
pub(crate) type Answered = Result<wire::answer::Answer, String>;

/// One replica: the sessions of all its shards.
pub(crate) struct CrowdGroup {
    pub(crate) sessions: Vec<Arc<LightSession>>,
    pub(crate) record: Arc<LatencyRecord>,
}

/// All replicas: trainers first.
pub(crate) struct Crowd {
    pub(crate) trainers: Vec<Arc<CrowdGroup>>,
    pub(crate) rollouts: Vec<Arc<CrowdGroup>>,
    pub(crate) record: Arc<LatencyRecord>,
}

/// The size of a crowd.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CrowdSize {
    pub(crate) trainers: usize,
    pub(crate) rollouts: usize,
    pub(crate) shards: u32,
}

impl CrowdSize {
    /// Groups of `shards` shards, with at most `sessions` sessions in all, but at least two groups.
    /// A few groups are trainers.
    pub(crate) fn of(sessions: usize, shards: u32) -> Self {
        let groups = (sessions / shards as usize).max(2);
        let trainers = (groups / 4).clamp(1, 4);
        Self { trainers, rollouts: groups - trainers, shards }
    }

    pub(crate) fn sessions(&self) -> usize {
        (self.trainers + self.rollouts) * self.shards as usize
    }
}

impl Crowd {
    /// Connects and opens all sessions; trainers `retain` that many versions. Returns the seconds that this took.
    pub(crate) async fn connect(server: &str, size: CrowdSize, retain: u32) -> Result<(Self, f64)> {
        let record = Arc::new(LatencyRecord::new());
        let start = Instant::now();
        let groups = size.trainers + size.rollouts;
        let members = (0..groups).flat_map(|group| {
            let trainer = group < size.trainers;
            (0..size.shards).map(move |shard| ShardIdentity {
                replica: format!("{}{group:05}", if trainer { "trainer" } else { "rollout" }),
                shard,
                num_shards: size.shards,
                role: if trainer { wire::Role::Trainer } else { wire::Role::Rollout },
                retain: if trainer { retain } else { 0 },
            })
        });
        let sessions = connect_all(server, members.collect(), &record).await?;
        let seconds = start.elapsed().as_secs_f64();
        let mut groups: Vec<_> = sessions
            .chunks(size.shards as usize)
            .map(|chunk| {
                Arc::new(CrowdGroup { sessions: chunk.to_vec(), record: Arc::clone(&record) })
            })
            .collect();
        let rollouts = groups.split_off(size.trainers);
        Ok((Self { trainers: groups, rollouts, record }, seconds))
    }

    /// All groups register, the first trainer publishes `version`, and every rollout replicates it. Returns the seconds
    /// that the replication took.
    pub(crate) async fn settle(&self, version: u64) -> Result<f64> {
        let all = self.trainers.iter().chain(&self.rollouts);
        each(all, |group| async move { group.all(Operation::Register, register()).await }).await?;
        self.trainers[0].publish(version, version).await?;
        let start = Instant::now();
        each(&self.rollouts, |group| async move {
            let replicate = wire::Replicate { selector: latest() };
            group.all(Operation::Replicate, call::Call::Replicate(replicate)).await
        })
        .await?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Crowd {
    /// All trainers but the first unpublish.
    pub(crate) async fn retire(&self) -> Result<()> {
        each(&self.trainers[1..], |group| async move {
            group.all(Operation::Unpublish, call::Call::Unpublish(wire::Unpublish {})).await
        })
        .await
    }
}

/// Does `work` for all groups at once.
async fn each<'a, F>(
    groups: impl IntoIterator<Item = &'a Arc<CrowdGroup>>,
    work: impl Fn(Arc<CrowdGroup>) -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    for group in groups {
        tasks.spawn(work(Arc::clone(group)));
    }
    while let Some(done) = tasks.join_next().await {
        done.context("a task panicked")??;
    }
    Ok(())
}

async fn connect_all(
    server: &str,
    members: Vec<ShardIdentity>,
    record: &Arc<LatencyRecord>,
) -> Result<Vec<Arc<LightSession>>> {
    let mut sessions: Vec<Option<Arc<LightSession>>> = vec![None; members.len()];
    let mut tasks = JoinSet::new();
    let mut members = members.into_iter().enumerate();
    loop {
        while tasks.len() < CONNECTING
            && let Some((index, member)) = members.next()
        {
            let (server, record) = (server.to_owned(), Arc::clone(record));
            tasks.spawn(async move { (index, connect(&server, index, member, record).await) });
        }
        let Some(done) = tasks.join_next().await else { break };
        let (index, session) = done.context("a task panicked")?;
        sessions[index] = Some(Arc::new(session?));
    }
    sessions.into_iter().collect::<Option<_>>().context("every task connected its session")
}

async fn connect(
    server: &str,
    index: usize,
    member: ShardIdentity,
    record: Arc<LatencyRecord>,
) -> Result<LightSession> {
    let place = SessionIdentity::new(member.clone(), 1 + index as u128);
    let opened = LightSession::open_patiently(server, MODEL, &place, &record, RETRIES).await;
    opened.with_context(|| format!("open {member:?}"))
}

impl CrowdGroup {
    /// All shards make a call at the same moment; the latency of every answer is recorded.
    pub(crate) async fn call(&self, kind: Operation, call: call::Call) -> Vec<Answered> {
        let sent = Instant::now();
        let waiting: Vec<_> = self.sessions.iter().map(|s| s.call(call.clone())).collect();
        let mut answers = Vec::with_capacity(waiting.len());
        for reply in waiting {
            answers.push(self.answered(kind, sent, reply.await.ok()));
        }
        answers
    }

    /// Records a reply.
    pub(crate) fn answered(
        &self,
        kind: Operation,
        sent: Instant,
        reply: Option<LoadReply>,
    ) -> Answered {
        let lost = || LoadReply { at: Instant::now(), result: Err("the session ended".to_owned()) };
        let LoadReply { at, result } = reply.unwrap_or_else(lost);
        self.record.add(kind, at.duration_since(sent).as_nanos() as u64);
        if let Err(error) = &result {
            self.record.failed(format!("{kind:?}: {error}"));
        }
        result
    }

    /// As [`CrowdGroup::call`]; an error if any shard got one.
    pub(crate) async fn all(&self, kind: Operation, call: call::Call) -> Result<()> {
        match self.call(kind, call).await.into_iter().find_map(Result::err) {
            Some(error) => bail!("{kind:?} failed: {error}"),
            None => Ok(()),
        }
    }

    /// Publishes a version, in memory of this generation, and seals it.
    pub(crate) async fn publish(&self, version: u64, generation: u64) -> Result<()> {
        let publish = wire::Publish { version, catalog: CATALOG.to_vec(), generation };
        self.all(Operation::Publish, call::Call::Publish(publish)).await?;
        for session in &self.sessions {
            session.seal(generation).await;
        }
        Ok(())
    }
}

pub(crate) fn latest() -> Option<wire::Selector> {
    Some(wire::Selector { kind: Some(selector::Kind::Latest(true)) })
}

fn register() -> call::Call {
    call::Call::Register(registration())
}

/// The registration of every shard.
pub(crate) fn registration() -> wire::Register {
    wire::Register { layout: vec![1; 16], export: 1, bytes: 1 << 30 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_the_sessions_that_were_asked_for_and_few_trainers() {
        for (sessions, shards, trainers) in
            [(32, 4, 2), (4, 4, 1), (1_000, 8, 4), (16_384, 8, 4), (8, 2, 1)]
        {
            let size = CrowdSize::of(sessions, shards);
            assert_eq!((size.trainers, size.shards), (trainers, shards), "{sessions}");
            assert_eq!(size.sessions(), sessions.max(2 * shards as usize));
            assert!(size.rollouts >= size.trainers);
        }
    }
}
