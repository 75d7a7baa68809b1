//! Recordings that are asked for without end.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::task::JoinHandle;

use crate::attacker::control::ControlClient;
use crate::attacker::runtime::handle;
use crate::attacker::wire::RecordRequest;
use crate::scene::Scene;

const CONNECTIONS: usize = 64;
const LENGTH: Duration = Duration::from_secs(5);
const SOON: Duration = Duration::from_secs(15);
/// Recordings of one cause that a directory keeps: weightcast's `limits::KEPT_RECORDINGS`.
const KEPT: usize = 16;

fn directory() -> PathBuf {
    std::env::temp_dir().join(format!("wc-attack-recordings-{}", std::process::id()))
}

/// A server whose recordings lie apart from those of this user.
pub(super) fn scene() -> Result<Scene> {
    Scene::new(&["--record-dir", directory().to_str().context("a directory of text")?])
}

pub(super) fn endless(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let written = Arc::new(AtomicU64::new(0));
    let askers: Result<Vec<_>> =
        (0..CONNECTIONS).map(|_| Ok(ask(&scene.control()?, &written))).collect();
    std::thread::sleep(LENGTH);
    let started = Instant::now();
    let told = scene.control()?.status();
    scene.expect(told.is_ok(), || format!("the status was not had: {:?}", told.err()));
    let honest = scene.rollout("policy", "newcomer")?;
    let took = started.elapsed();
    askers?.iter().for_each(JoinHandle::abort);
    let written = written.load(Ordering::Relaxed);
    scene.note(format!("{written} recordings; the status and an honest worker came in {took:.1?}"));
    scene.expect(written > 0, || "no recording was written: nothing was tried".to_owned());
    scene.expect(took < SOON, || "honest workers wait for those who have recordings".to_owned());
    let kept = files(&directory())?;
    scene.expect(kept <= KEPT + 1, || format!("{kept} recordings are kept"));
    scene.keep(honest);
    fs::remove_dir_all(directory())?;
    Ok(())
}

/// Has one recording after the other written, and counts them.
fn ask(control: &ControlClient, written: &Arc<AtomicU64>) -> JoinHandle<()> {
    let (mut rpc, written) = (control.rpc.clone(), Arc::clone(written));
    handle().spawn(async move {
        loop {
            match rpc.record(RecordRequest::default()).await {
                Ok(_) => drop(written.fetch_add(1, Ordering::Relaxed)),
                // Others are before it.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
}

/// How many files there are; each may be read by its user alone.
fn files(directory: &Path) -> Result<usize> {
    let mut count = 0;
    for file in fs::read_dir(directory)? {
        // The next recording may take its place meanwhile.
        let Ok(about) = file?.metadata() else { continue };
        anyhow::ensure!(about.permissions().mode() & 0o777 == 0o600, "others may read a recording");
        count += 1;
    }
    Ok(count)
}
