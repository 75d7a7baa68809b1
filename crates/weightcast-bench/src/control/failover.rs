//! Kills the server of thousands of sessions, and measures how soon the backup knows what they
//! hold.
//!
//! As real sessions do, each stays with its server until its lease has run out, then turns to the
//! backup and announces what it holds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::task::JoinSet;
use weightcast::wire;

use super::crowd::{Crowd, CrowdGroup, MODEL};
use super::session::{LightSession, Retries, SessionIdentity};
use crate::base::program::ServerProcess;

/// Share of a lease, at its end, in which a session no longer acts (T1).
const MARGIN: f64 = 0.1;
/// Pauses between tries of a session, as real ones make them.
const RETRIES: Retries =
    Retries { tries: 31, pause: Duration::from_millis(50), longest_pause: Duration::from_secs(1) };

/// How a failover went. Seconds count from the moment at which the server was killed.
#[derive(Debug, Serialize)]
pub(crate) struct Failover {
    pub(crate) sessions: usize,
    pub(crate) lease_s: f64,
    /// Until the first session turned to the backup: the rest of its lease.
    pub(crate) first_s: f64,
    /// Until 95 % of the sessions were in whole groups again.
    pub(crate) most_s: f64,
    /// Until all sessions were in whole groups again.
    pub(crate) all_s: f64,
    /// CPU seconds of the backup.
    pub(crate) cpu_s: f64,
}

/// Kills `server`; all sessions that held `version` there bring the version to `backup`.
pub(crate) async fn measure(
    crowd: &Crowd,
    server: ServerProcess,
    backup: &ServerProcess,
    lease: Duration,
    version: u64,
) -> Result<Failover> {
    let cpu = backup.cpu_seconds()?;
    drop(server);
    let killed = Instant::now();
    let mut tasks = JoinSet::new();
    let holders = crowd.trainers.iter().take(1).chain(&crowd.rollouts);
    let others = crowd.trainers.iter().skip(1);
    let groups = holders.map(|group| (group, Some(version))).chain(others.map(|g| (g, None)));
    for (group, held) in groups {
        for shard in 0..group.sessions.len() {
            let (group, address) = (Arc::clone(group), backup.address().to_owned());
            tasks.spawn(async move { come_over(&group, shard, held, &address, lease).await });
        }
    }
    let mut sessions = Vec::new();
    let (mut turned, mut whole) = (Vec::new(), Vec::new());
    while let Some(came) = tasks.join_next().await {
        let came = came.context("a task panicked")??;
        turned.push(came.turned.duration_since(killed).as_secs_f64());
        whole.push(came.whole.duration_since(killed).as_secs_f64());
        sessions.push(came.session); // stays open until all are there
    }
    whole.sort_by(f64::total_cmp);
    ensure!(!whole.is_empty(), "there are no sessions");
    Ok(Failover {
        sessions: whole.len(),
        lease_s: lease.as_secs_f64(),
        first_s: turned.into_iter().fold(f64::INFINITY, f64::min),
        most_s: whole[(whole.len() * 95).div_ceil(100) - 1],
        all_s: whole[whole.len() - 1],
        cpu_s: backup.cpu_seconds()? - cpu,
    })
}

/// A session that has come over.
struct Came {
    turned: Instant,
    whole: Instant,
    session: LightSession,
}

async fn come_over(
    group: &CrowdGroup,
    shard: usize,
    held: Option<u64>,
    address: &str,
    lease: Duration,
) -> Result<Came> {
    let old = &group.sessions[shard];
    let acts = lease.mul_f64(1.0 - MARGIN);
    tokio::time::sleep(acts.saturating_sub(old.since_renewed())).await;
    let turned = Instant::now();
    let place = SessionIdentity { announce: Some(announcement(old, held)), ..old.place() };
    let opened = LightSession::open_patiently(address, MODEL, &place, &group.record, RETRIES).await;
    let session = opened.context("come over to the backup")?;
    Ok(Came { turned, whole: Instant::now(), session })
}

/// What a session of the crowd announces: nothing has changed since it held the version.
fn announcement(session: &LightSession, held: Option<u64>) -> wire::Announce {
    let epoch = session.place().ticket.map_or(0, |ticket| ticket.epoch);
    wire::Announce {
        answered: session.calls(),
        generation: u64::MAX / 2,
        registration: Some(super::crowd::registration()),
        held: held.map(|number| wire::Holding {
            version: Some(wire::Version { epoch, number }),
            catalog: super::crowd::CATALOG.to_vec(),
            sums: super::session::sums(),
            ..wire::Holding::default()
        }),
        retains: Vec::new(),
    }
}
