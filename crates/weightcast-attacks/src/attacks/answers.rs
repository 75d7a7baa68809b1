//! Answers that are asked for and not read.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinHandle;

use crate::attacker::control::ControlClient;
use crate::attacker::forge;
use crate::attacker::runtime::handle;
use crate::attacker::wire::GetManifestRequest;
use crate::scene::Scene;

/// Manifests that are together as large as everything that a server sends at once.
const MANIFESTS: u64 = 32;
const BYTES: usize = 8 << 20;
const CONNECTIONS: u64 = 64;
/// Answers that a connection leaves unread. The oldest is dropped for a new one, so that at any time some reader of
/// each manifest has just come.
const UNREAD: usize = 2;
const PAUSE: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(15);

pub(super) fn unread(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    // The server stores the manifests, which makes it grow too.
    scene.growth_mb += ((MANIFESTS as usize * BYTES) >> 20) as f64;
    let control = scene.control()?;
    let mut digests = Vec::new();
    for number in 0..MANIFESTS {
        let manifest = forge::pattern(number, BYTES);
        control.put_manifest(&manifest)?;
        digests.push(forge::blob_digest(&manifest));
    }
    let small = forge::pattern(MANIFESTS, 100_000);
    control.put_manifest(&small)?;
    let mut readers = UnreadAnswers::default();
    for number in 0..CONNECTIONS {
        let control = scene.control()?;
        let digests =
            (0..MANIFESTS).map(|at| digests[((at + number) % MANIFESTS) as usize].clone());
        readers.begin(&control, digests.collect());
    }
    std::thread::sleep(3 * PAUSE);
    // Other clients get their answers meanwhile.
    let started = Instant::now();
    let mine = scene.control()?.manifest(&forge::blob_digest(&small));
    let whole = mine.as_ref().is_ok_and(|bytes| *bytes == small);
    scene.expect(whole, || format!("a small manifest was not had: {:?}", mine.err()));
    let told = scene.control()?.status();
    scene.expect(told.is_ok(), || format!("the status was not had: {:?}", told.err()));
    let honest = scene.rollout("policy", "newcomer")?;
    let took = started.elapsed();
    scene.note(format!("a manifest, the status and an honest worker came in {took:.1?}"));
    scene.expect(took < SOON, || "honest readers wait for those who take nothing".to_owned());
    scene.keep(honest);
    Ok(())
}

/// Connections that ask for manifests and read none, until this value is dropped.
#[derive(Default)]
struct UnreadAnswers(Vec<JoinHandle<()>>);

impl UnreadAnswers {
    fn begin(&mut self, control: &ControlClient, digests: Vec<Vec<u8>>) {
        let mut rpc = control.rpc.clone();
        self.0.push(handle().spawn(async move {
            let mut unread = VecDeque::new();
            for digest in digests.into_iter().cycle() {
                if let Ok(answer) = rpc.get_manifest(GetManifestRequest { digest }).await {
                    unread.push_back(answer);
                }
                if unread.len() >= UNREAD {
                    unread.pop_front();
                }
                tokio::time::sleep(PAUSE).await;
            }
        }));
    }
}

impl Drop for UnreadAnswers {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}
