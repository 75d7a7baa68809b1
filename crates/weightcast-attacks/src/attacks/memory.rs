//! A source that is believed when it says which process it is, and where its memory lies.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::attacker::control::{CallOutcome, ControlClient, open};
use crate::attacker::data::{
    self, DESCRIBE, DESCRIPTION, Data, IDENTIFY, IDENTITY, frame, numbers,
};
use crate::attacker::forge;
use crate::attacker::port::{LyingPort, refusal};
use crate::attacker::wire::Role;
use crate::scene::Scene;
use crate::scene::victims::{Honest, SECRET_BYTES, TENSOR};

const MODEL: &str = "bait";
const GENERATION: u64 = 1;
/// Bytes that are equal by chance: one in 256.
const CHANCE: u64 = SECRET_BYTES as u64 / 64;

pub(super) fn of_another(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let mut victim = scene.trainer("quiet")?;
    victim.must("publish 1")?;
    let reader = reader(scene)?;
    let address = data_address(&scene.control()?, "quiet", "trainer")?;
    steal(scene, "127.0.0.1:0", &address, (victim.settings.secret, victim.secret_at), reader)?;
    scene.keep(victim);
    Ok(())
}

/// What a process says of itself holds for its port, and there are other hosts with that port.
pub(super) fn behind_its_port(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let mut victim = scene.trainer("quiet")?;
    victim.must("publish 1")?;
    let reader = reader(scene)?;
    let address = data_address(&scene.control()?, "quiet", "trainer")?;
    let port = address.rsplit(':').next().context("a port")?;
    let at = format!("127.0.0.2:{port}");
    steal(scene, &at, &address, (victim.settings.secret, victim.secret_at), reader)?;
    scene.keep(victim);
    Ok(())
}

pub(super) fn of_itself(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let reader = reader(scene)?;
    let address = data_address(&scene.control()?, MODEL, "reader")?;
    let secret = (reader.settings.secret, reader.secret_at);
    steal(scene, "127.0.0.1:0", &address, secret, reader)
}

fn reader(scene: &mut Scene) -> Result<Honest> {
    let mut settings = scene.worker(MODEL, "reader", "rollout");
    settings.bytes = SECRET_BYTES;
    let reader = scene.start(settings)?;
    scene.watch(&reader);
    Ok(reader)
}

/// Where a worker's data port is: `status` says so to everybody.
pub(super) fn data_address(control: &ControlClient, model: &str, replica: &str) -> Result<String> {
    let status = control.status()?;
    let models = status.models.iter().filter(|of| of.name == model);
    let mut replicas = models.flat_map(|of| &of.replicas).filter(|of| of.name == replica);
    let shard = replicas.next().and_then(|of| of.shards.first());
    Ok(shard
        .with_context(|| format!("status does not show {model}/{replica}"))?
        .data_address
        .clone())
}

/// Passes on, from `at`, what the process at `address` says of itself, and names addresses of its
/// secret.
fn steal(
    scene: &mut Scene,
    at: &str,
    address: &str,
    (seed, secret_at): (u64, u64),
    mut reader: Honest,
) -> Result<()> {
    let control = scene.control()?;
    let mut victim = Data::connect(address, Some(&scene.workspace.token))?;
    let identity = victim.request(IDENTIFY, &[])?.body;
    // The nonce is the one word of the victim that the attacker knows, so it becomes the fence word.
    let field = |at: usize| identity.get(at..at + 8).and_then(|eight| eight.first_chunk());
    let number = |at: usize| field(at).map(|eight| u64::from_le_bytes(*eight)).unwrap_or_default();
    let (word_at, word) = (number(16), number(40));
    let export = forge::export_for(word, GENERATION);
    let answer = Arc::new(move |asked: &data::Frame| match asked.kind {
        IDENTIFY => frame(IDENTITY, 0, &identity),
        DESCRIBE => {
            // One region of the process's memory, and where it lies, for the direct lane.
            let size = [&[0][..], &numbers(&[1, SECRET_BYTES as u64]), &[1]].concat();
            let place = numbers(&[2, 16, word_at, secret_at]);
            frame(DESCRIPTION, 0, &[size, place].concat())
        }
        _ => refusal(1),
    });
    let port = LyingPort::open(at, &scene.workspace.token, answer)?;
    // Sealed never: the reader has to wait with what it has read.
    let manifest = forge::one_tensor(TENSOR, SECRET_BYTES as u64);
    let (layout, bytes) = (forge::blob_digest(&manifest), SECRET_BYTES as u64);
    control.put_manifest(&manifest)?;
    let mut source = open(MODEL, "source", Role::Trainer);
    source.data_address = port.address.clone();
    let mut source = control.open(source)?;
    source.register(&layout, export, bytes)?;
    source.publish(1, &forge::catalog(TENSOR, bytes), GENERATION)?;
    reader.say("replicate latest 8000");
    let leeched = leech(scene, &control, &layout, seed);
    let reply = reader.hear();
    let held = reader.must(&format!("holds {seed}"))?.found;
    scene.note(format!(
        "{} readers shook hands with the source; the reader ended with: {}",
        port.admitted(),
        reply.said()
    ));
    scene.note(format!("the reader's memory holds {held} of {SECRET_BYTES} secret bytes"));
    scene.expect(held < CHANCE, || format!("{held} of {SECRET_BYTES} secret bytes were copied"));
    match leeched {
        Ok(leeched) => {
            scene.note(format!("relayed to the attacker: {leeched} of {SECRET_BYTES}"));
            scene.expect(leeched < CHANCE, || {
                format!("{leeched} of {SECRET_BYTES} secret bytes were relayed to the attacker")
            });
        }
        Err(error) => scene.note(format!("relayed to the attacker: nothing ({error:#})")),
    }
    scene.keep(reader);
    Ok(())
}

/// Reads from the reader what it has read: it is a relay.
fn leech(scene: &Scene, control: &ControlClient, layout: &[u8], seed: u64) -> Result<u64> {
    let mut leech = control.open(open(MODEL, "leech", Role::Rollout))?;
    leech.register(layout, 1, SECRET_BYTES as u64)?;
    let selector = crate::attacker::wire::Selector {
        kind: Some(crate::attacker::wire::selector::Kind::Exact(1)),
    };
    let call = crate::attacker::wire::Replicate { selector: Some(selector) };
    let seq = leech.begin(crate::attacker::wire::call::Call::Replicate(call))?;
    let outcome = leech.outcome(seq, Duration::from_secs(6))?;
    let CallOutcome::Assigned(assigned) = outcome else { anyhow::bail!("{outcome:?}") };
    let assignment = assigned.assignment.context("an assignment")?;
    let copy = crate::attacker::control::SourceCopy::of(&assignment)?;
    let shard = copy.shards.first().context("a source")?;
    let mut data = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
    let id = forge::export_at(shard.export, shard.generation);
    let extent = [0, 0, SECRET_BYTES as u64, 1, 0];
    let bytes = data.read(id, shard.generation, extent)?;
    let secret = forge::pattern(seed, SECRET_BYTES);
    Ok(bytes.iter().zip(&secret).filter(|(one, other)| one == other).count() as u64)
}
