//! A replica that claims to hold a version, so that the trainer may give up the last real copy.

use anyhow::{Context, Result, bail};
use prost::Message;

use crate::attacker::control::{CallOutcome, open};
use crate::attacker::data::{DIGEST, Data, NOTE, ask, numbers};
use crate::attacker::forge::{export_at, key};
use crate::attacker::wire::client_frame::Body as Ask;
use crate::attacker::wire::server_frame::Body as Told;
use crate::attacker::wire::{Prepared, Role, ShardSums, Sum, manifest};
use crate::scene::victims::TENSOR;
use crate::scene::{MODEL_BYTES, Scene};

const MODEL: &str = "kept";

/// How the attacker gets the sum that a commit must show.
type SumSource = fn(&Scene) -> Result<[u64; 2]>;

pub(super) fn by_inspect(scene: &mut Scene) -> Result<()> {
    claim(scene, |scene| {
        // The server says only whether a sum is right.
        let guess = Sum { low: 0, high: 0 };
        let reply = scene.control()?.inspect(MODEL, "trainer", Some(guess))?;
        anyhow::ensure!(reply.as_published != Some(true), "zero is right");
        Ok([guess.low, guess.high])
    })
}

/// Multiplies a tensor's digest by its key.
fn folded(digest: [u64; 2]) -> [u64; 2] {
    let key = key(TENSOR, MODEL_BYTES as u64);
    [digest[0].wrapping_mul(key[0]), digest[1].wrapping_mul(key[1])]
}

pub(super) fn by_digest(scene: &mut Scene) -> Result<()> {
    claim(scene, |scene| {
        let copy = scene.control()?.copy_of(MODEL, "trainer")?;
        let shard = copy.shards.first().context("a shard")?;
        let mut data = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
        let id = export_at(shard.export, shard.generation);
        let mut body = ask(id, shard.generation, &[[0, 0, MODEL_BYTES as u64, 1, 0]]);
        body.extend(numbers(&[0, 0]));
        let answer = data.request(DIGEST, &body)?.body;
        let (low, rest) = answer.split_first_chunk::<8>().context("no digest")?;
        let high = rest.first_chunk::<8>().context("half a digest")?;
        Ok(folded([u64::from_le_bytes(*low), u64::from_le_bytes(*high)]))
    })
}

pub(super) fn by_note(scene: &mut Scene) -> Result<()> {
    claim(scene, |scene| {
        let copy = scene.control()?.copy_of(MODEL, "trainer")?;
        let shard = copy.shards.first().context("a shard")?;
        let mut data = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
        let id = export_at(shard.export, shard.generation);
        let answer = data.request(NOTE, &numbers(&[id, shard.generation]))?;
        let [1, note @ ..] = answer.body.as_slice() else { bail!("there is no note") };
        let [low, high] = manifest::Parts::decode(note)?.lanes[..] else { bail!("no two lanes") };
        Ok(folded([low, high]))
    })
}

fn claim(scene: &mut Scene, sums: SumSource) -> Result<()> {
    scene.begin()?;
    let mut settings = scene.worker(MODEL, "trainer", "trainer");
    settings.retain = 1;
    let mut trainer = scene.start(settings)?;
    trainer.must("publish 1")?;
    scene.watch(&trainer);
    match commit(scene, sums) {
        Ok(said) => scene.note(format!("the claim: {said}")),
        Err(error) => scene.note(format!("the claim failed: {error:#}")),
    }
    // The last real copy goes, or is kept aside.
    let unpublished = trainer.ask("unpublish");
    scene.expect(unpublished.ok, || format!("unpublish: {}", unpublished.said()));
    let mut reader = scene.rollout(MODEL, "reader")?;
    let read = reader.ask("replicate 1 20000");
    let status = scene.control()?.status()?;
    let losses: usize = status.losses.len();
    scene.note(format!("then a rollout wants it: {}; losses recorded: {losses}", read.said()));
    scene.expect(read.ok && read.right, || {
        format!("the retained version is lost ({}), {losses} losses recorded", read.said())
    });
    scene.keep(trainer);
    scene.keep(reader);
    Ok(())
}

/// Commits without having read a byte, and stays.
fn commit(scene: &mut Scene, sums: SumSource) -> Result<String> {
    let control = scene.control()?;
    let layout = control.copy_of(MODEL, "trainer")?.shards[0].layout.clone();
    let mut claimant = control.open(open(MODEL, "claimant", Role::Rollout))?;
    claimant.register(&layout, 1, MODEL_BYTES as u64)?;
    let CallOutcome::Assigned(assigned) = claimant.replicate(1)? else { bail!("not assigned") };
    let [low, high] = sums(scene)?;
    let sum = Some(Sum { low, high });
    claimant.stream.say(Ask::Prepared(Prepared {
        seq: assigned.seq,
        attempt: assigned.attempt,
        generation: 1,
        sums: Some(ShardSums { counted: sum, held: sum, expected: sum }),
    }))?;
    let answered = claimant.stream.wait(std::time::Duration::from_secs(5), |told| match told {
        Told::Answered(answered) => Some(format!("{:?}", answered.result)),
        Told::Assigned(assigned) => Some(format!("assigned again, attempt {}", assigned.attempt)),
        Told::Broken(broken) => Some(format!("{broken:?}")),
        _ => None,
    })?;
    // The claimant stays until the attack is over.
    scene.stays(claimant);
    Ok(answered)
}
