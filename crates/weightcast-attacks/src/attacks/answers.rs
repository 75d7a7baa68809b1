//! Answers that nobody takes.

use std::time::Duration;

use anyhow::Result;

use crate::forge;
use crate::runtime::run_for;
use crate::scene::Scene;
use crate::wire::GetManifestRequest;

const REQUESTS: usize = 120;
const REQUESTS_PER_CONNECTION: usize = 30;
const BYTES: usize = 8 << 20;

pub(super) fn unread(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let control = scene.control()?;
    let manifest = forge::pattern(1, BYTES);
    control.put_manifest(&manifest)?;
    let digest = forge::blob_digest(&manifest);
    let (mut answers, mut refused) = (Vec::new(), 0);
    for _ in 0..REQUESTS / REQUESTS_PER_CONNECTION {
        let control = scene.control()?;
        for _ in 0..REQUESTS_PER_CONNECTION {
            let mut rpc = control.rpc.clone();
            let asked = rpc.get_manifest(GetManifestRequest { digest: digest.clone() });
            match run_for(Duration::from_secs(5), asked) {
                Ok(Ok(answer)) => answers.push(answer.into_inner()),
                _ => refused += 1,
            }
        }
    }
    scene.note(format!("{} answers wait, {refused} requests were turned away", answers.len()));
    // Others get theirs meanwhile.
    let mine = scene.control()?.manifest(&digest);
    let whole = mine.as_ref().is_ok_and(|bytes| *bytes == manifest);
    scene.note(format!("the same manifest, taken: {}", if whole { "whole" } else { "not had" }));
    let honest = scene.rollout("policy", "newcomer")?;
    scene.note(format!("an honest worker opened in {:.0} ms", honest.opened_ms));
    scene.keep(honest);
    drop(answers);
    Ok(())
}
