//! Manifests that never end, that are larger than they look, or that are too many.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::ReceiverStream;

use crate::attacker::control::{ControlClient, open};
use crate::attacker::forge;
use crate::attacker::runtime::handle;
use crate::attacker::wire::{ManifestPage, Role};
use crate::scene::Scene;
use crate::scene::victims::TENSOR;

const PAGE: usize = 64 << 10;
const CONNECTIONS: usize = 64;
/// As many streams as a server takes on one connection.
const STREAMS_PER_CONNECTION: usize = 2;
/// The size that each stream announces, and the pages that it sends: one, or more than a stream buffers while it is
/// not read.
const SIZES: [u64; 2] = [64 << 20, 1 << 20];
const PAGES: [usize; 2] = [1, 12];
/// The pause before a stream that was turned away tries again.
const AGAIN: Duration = Duration::from_millis(200);
/// The longest that an honest layout may take: hundredths of a second are usual, on a crowded machine some more.
const SOON_MS: f64 = 15_000.0;

pub(super) fn unfinished(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let mut streams = UnendedManifests::default();
    for connection in 0..CONNECTIONS {
        let control = scene.control()?;
        for stream in 0..STREAMS_PER_CONNECTION {
            streams.begin(&control, (2 * connection + stream) as u64);
        }
    }
    streams.wait(CONNECTIONS * STREAMS_PER_CONNECTION);
    // Honest layouts still get their turn, again and again.
    for number in 0..3 {
        let honest = scene.rollout("policy-2", &format!("newcomer-{number}"))?;
        scene.note(format!("an honest layout came in {:.0} ms", honest.opened_ms));
        let soon = honest.opened_ms < SOON_MS;
        scene.expect(soon, || "an honest layout waits for those that never end".to_owned());
        scene.keep(honest);
    }
    let begun = streams.pages.load(Ordering::Relaxed);
    scene.note(format!("{begun} pages were sent, no manifest was ended"));
    Ok(())
}

/// Manifests that begin, and begin anew when the server lets go of them, until this value is dropped.
#[derive(Default)]
struct UnendedManifests {
    tasks: Vec<JoinHandle<()>>,
    pages: Arc<AtomicUsize>,
}

impl UnendedManifests {
    fn begin(&mut self, control: &ControlClient, number: u64) {
        let (rpc, begun) = (control.rpc.clone(), Arc::clone(&self.pages));
        let (size, count) = (SIZES[number as usize / 2 % 2], PAGES[number as usize % 2]);
        self.tasks.push(handle().spawn(async move {
            loop {
                let (pages, outgoing) = mpsc::channel(1);
                let begun = Arc::clone(&begun);
                let send = async move {
                    let digest = number.to_le_bytes().repeat(2);
                    for _ in 0..count {
                        let digest = digest.clone();
                        let page = ManifestPage { digest, data: vec![0; PAGE], size };
                        if pages.send(page).await.is_err() {
                            break;
                        }
                        begun.fetch_add(1, Ordering::Relaxed);
                    }
                    std::future::pending::<()>().await;
                };
                let mut rpc = rpc.clone();
                tokio::select! {
                    _ = rpc.put_manifest(ReceiverStream::new(outgoing)) => {}
                    () = send => {}
                }
                tokio::time::sleep(AGAIN).await;
            }
        }));
    }

    /// Until so many pages were sent.
    fn wait(&self, pages: usize) {
        while self.pages.load(Ordering::Relaxed) < pages {
            std::thread::sleep(AGAIN);
        }
    }
}

impl Drop for UnendedManifests {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Two bytes of the wire make an entry of ninety.
const ENTRIES: usize = 8 << 20;

pub(super) fn empty_entries(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let control = scene.control()?;
    let mut reader = scene.rollout("bait", "reader")?;
    scene.watch(&reader);
    let bytes = crate::scene::MODEL_BYTES as u64;
    // Entries, tensors, and shapes of a tensor: each may be empty and repeated.
    for (number, tag) in [(1, 0x1a_u8), (2, 0x12)] {
        let manifest: Vec<u8> = [tag, 0].repeat(ENTRIES);
        if let Err(error) = control.put_manifest(&manifest) {
            scene.note(format!("the server does not store it: {error:#}"));
            continue;
        }
        let replica = format!("source-{number}");
        let mut source = control.open(open("bait", &replica, Role::Trainer))?;
        source.register(&forge::blob_digest(&manifest), 1, bytes)?;
        source.publish(number, &forge::catalog(TENSOR, bytes), 1)?;
        let reply = reader.ask("replicate latest 15000");
        scene.note(format!("{} MiB of {tag:#x}: {}", manifest.len() >> 20, reply.said()));
        scene.expect(!reply.ok, || "what nobody holds was read".to_owned());
    }
    scene.keep(reader);
    Ok(())
}

/// As many as a server keeps by default, and some more.
const TINY: usize = 32_768 + 200;
const AT_ONCE: usize = 32;

pub(super) fn tiny(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let threads: Vec<_> = (0..AT_ONCE)
        .map(|part| {
            let control = scene.control()?;
            Ok(std::thread::spawn(move || {
                let numbers = (0..TINY).skip(part).step_by(AT_ONCE);
                numbers.take_while(|n| control.put_manifest(&n.to_le_bytes()).is_ok()).count()
            }))
        })
        .collect::<Result<_>>()?;
    let stored: usize = threads.into_iter().map(|thread| thread.join().unwrap_or(0)).sum();
    scene.note(format!("{stored} of {TINY} tiny manifests were taken"));
    let mut settings = scene.worker("policy-2", "newcomer", "rollout");
    settings.bytes += 8;
    let honest = scene.start(settings);
    match honest {
        Ok(honest) => {
            scene.note(format!("an honest layout came in {:.0} ms", honest.opened_ms));
            scene.keep(honest);
        }
        Err(error) => scene.expect(false, || format!("an honest layout is refused: {error:#}")),
    }
    Ok(())
}
