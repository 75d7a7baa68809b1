//! Manifests that never end, that are larger than they look, that are too many.

use std::time::Duration;

use anyhow::Result;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::control::{Control, open};
use crate::forge;
use crate::runtime::{handle, run_for};
use crate::scene::Scene;
use crate::victims::TENSOR;
use crate::wire::{ManifestPage, Role};

const PAGE: usize = 64 << 10;
const STREAMS: usize = 32;
const STREAMS_PER_CONNECTION: usize = 8;
/// Just short of the largest manifest.
const PAGES: usize = 1_000;
/// A page that the server does not take within this time is not taken.
const STUCK: Duration = Duration::from_secs(2);

pub(super) fn unfinished(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let mut streams = Vec::new();
    for _ in 0..STREAMS / STREAMS_PER_CONNECTION {
        let control = scene.control()?;
        streams.extend((0..STREAMS_PER_CONNECTION).map(|_| begin(&control)));
    }
    let mut sent = 0_usize;
    for page in 0..PAGES {
        for stream in &mut streams {
            let Some(pages) = stream else { continue };
            let digest = if page == 0 { vec![1; 16] } else { Vec::new() };
            let size = 64 << 20;
            let send = pages.send(ManifestPage { digest, data: vec![0; PAGE], size });
            match run_for(STUCK, send) {
                Ok(Ok(())) => sent += PAGE,
                _ => *stream = None,
            }
        }
    }
    let open = streams.iter().flatten().count();
    scene
        .note(format!("{} MiB were sent on {STREAMS} streams, {open} still take more", sent >> 20));
    // Those that are there are kept for a moment; honest layouts still find a place.
    let honest = scene.rollout("policy-2", "newcomer")?;
    scene.note(format!("an honest layout came in {:.0} ms", honest.opened_ms));
    scene.keep(honest);
    Ok(())
}

/// A manifest that has begun.
fn begin(control: &Control) -> Option<mpsc::Sender<ManifestPage>> {
    let (pages, outgoing) = mpsc::channel(1);
    let mut rpc = control.rpc.clone();
    handle().spawn(async move {
        let _ = rpc.put_manifest(ReceiverStream::new(outgoing)).await;
    });
    Some(pages)
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
