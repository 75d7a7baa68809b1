//! Writes into memory of others: by leave of no grant, of one that is over, beyond one, twice by one.

use anyhow::{Context, Result, ensure};

use crate::attacker::data::{Data, REFUSED, Rectangle, WRITE, WRITTEN, WriteBy};
use crate::attacker::forge::{export_at, random};
use crate::scene::Scene;
use crate::scene::granter::{Changed, GRANTED_BYTES, Granter, OpenGrant};

const GENERATION: u64 = 7;
/// Longer than any attack takes.
const LONG_MS: u64 = 600_000;
/// The code of a refusal for want of a grant, and of one for a place outside of it.
const NOT_GRANTED: u8 = 5;
const OUT_OF_RANGE: u8 = 3;
const TOO_MUCH: u8 = 4;
/// All that a grant is over.
const WHOLE: Rectangle = [0, 0, GRANTED_BYTES, 1, GRANTED_BYTES];

/// A process that opens grants, and a connection of the attacker to it.
struct Stage {
    granter: Granter,
    data: Data,
}

fn stage(scene: &mut Scene) -> Result<Stage> {
    scene.begin()?;
    let granter = Granter::start(&scene.workspace)?;
    scene.watch_process("granter", granter.id());
    let data = Data::connect(&granter.data_address, Some(&scene.workspace.token))?;
    Ok(Stage { granter, data })
}

/// By the holder of a secret.
fn by(grant: &OpenGrant) -> WriteBy<'_> {
    WriteBy { grant: grant.id, generation: GENERATION, secret: &grant.secret }
}

/// A whole write of bytes that are not zero, as the holder of the secret would send it next.
fn whole(data: &mut Data, by: &WriteBy<'_>) -> Vec<u8> {
    data.write_body(by, &[WHOLE], &[0xff; GRANTED_BYTES as usize])
}

impl Stage {
    /// Sends a write that no honest writer has sent; how it must be refused.
    fn refused(&mut self, scene: &mut Scene, what: &str, body: &[u8], code: u8) -> Result<()> {
        let answer = self.data.request(WRITE, body).with_context(|| what.to_owned())?;
        let (kind, status) = (answer.kind, answer.status);
        scene.expect((kind, status) == (REFUSED, code), || {
            format!("{what}: answered by {kind} ({status}) instead of refusal {code}")
        });
        self.unchanged(scene, what)
    }

    fn unchanged(&mut self, scene: &mut Scene, what: &str) -> Result<()> {
        let changed = self.granter.changed()?;
        scene.expect(changed == Changed { granted: 0, beside: 0 }, || {
            format!(
                "{what}: {} granted bytes and {} beside were written",
                changed.granted, changed.beside
            )
        });
        Ok(())
    }

    /// The honest writer can write, so what is refused is refused for what it is.
    fn granted(&mut self, grant: &OpenGrant) -> Result<Vec<u8>> {
        let body = whole(&mut self.data, &by(grant));
        let answer = self.data.request(WRITE, &body)?;
        ensure!(answer.kind == WRITTEN, "an honest write was answered by {}", answer.kind);
        let changed = self.granter.changed()?;
        ensure!(changed == Changed { granted: GRANTED_BYTES, beside: 0 }, "{changed:?}");
        Ok(body)
    }

    fn finish(mut self, scene: &mut Scene) {
        let lives = self.granter.lives();
        scene.expect(lives, || "the granter is dead".to_owned());
    }
}

/// Whoever has the token guesses names and secrets; and asks trainers, who have granted nothing.
pub(super) fn forged(scene: &mut Scene) -> Result<()> {
    let mut stage = stage(scene)?;
    let none = WriteBy { grant: 0, generation: GENERATION, secret: &[0; 32] };
    let body = whole(&mut stage.data, &none);
    stage.refused(scene, "a grant where none is open", &body, NOT_GRANTED)?;
    let grant = stage.granter.grant(GENERATION, LONG_MS, None)?;
    let other = stage.granter.grant(GENERATION, LONG_MS, None)?;
    let (guess, token) = (random::<32>(), scene.workspace.token.clone());
    let secrets: [(&str, &[u8]); 5] = [
        ("a guessed secret", &guess),
        ("no secret", &[]),
        ("a secret of zeros", &[0; 32]),
        ("the job's token as the secret", token.as_bytes()),
        ("the secret of another grant", &other.secret),
    ];
    for (what, secret) in secrets {
        let body = whole(&mut stage.data, &WriteBy { secret, ..by(&grant) });
        stage.refused(scene, what, &body, NOT_GRANTED)?;
    }
    let body = whole(&mut stage.data, &WriteBy { grant: grant.id ^ 1, ..by(&grant) });
    stage.refused(scene, "the name of no grant", &body, NOT_GRANTED)?;
    for bit in [0, 9, 40, 70] {
        let mut body = whole(&mut stage.data, &by(&grant));
        body[bit] ^= 1;
        stage.refused(scene, "a write that was changed under way", &body, NOT_GRANTED)?;
    }
    let elsewhere = stage.granter.grant(GENERATION, LONG_MS, Some("10.1.2.3"))?;
    let body = whole(&mut stage.data, &by(&elsewhere));
    stage.refused(scene, "a stolen secret, from another host", &body, NOT_GRANTED)?;
    stage.granted(&grant)?;
    stage.finish(scene);
    at_a_trainer(scene)
}

/// A version that is published stays as it is, whatever is written to the port that serves it.
fn at_a_trainer(scene: &mut Scene) -> Result<()> {
    let (mut trainer, mut reader) = (scene.trainer("target")?, scene.rollout("target", "reader")?);
    trainer.must("publish 1")?;
    let copy = scene.control()?.copy_of("target", &trainer.settings.replica)?;
    let shard = copy.shards.first().context("a shard")?;
    let mut data = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
    for id in [shard.export, export_at(shard.export, shard.generation), 0] {
        let secret = scene.workspace.token.clone();
        let (generation, secret) = (shard.generation, secret.as_bytes());
        let body = whole(&mut data, &WriteBy { grant: id, generation, secret });
        let answer = data.request(WRITE, &body)?;
        scene.expect((answer.kind, answer.status) == (REFUSED, NOT_GRANTED), || {
            format!("a trainer answered a write by {} ({})", answer.kind, answer.status)
        });
    }
    let right = trainer.must("right 1")?.right;
    scene.expect(right, || "bytes of a published version have changed".to_owned());
    let updated = reader.ask("update 60000");
    scene.expect(updated.ok && updated.right, || format!("a reader: {}", updated.said()));
    scene.keep(trainer);
    scene.keep(reader);
    Ok(())
}

/// The secret is right, and the grant over: by the clock, by its owner, by what is published there.
pub(super) fn expired(scene: &mut Scene) -> Result<()> {
    let mut stage = stage(scene)?;
    let over = stage.granter.grant(GENERATION, 0, None)?;
    let body = whole(&mut stage.data, &by(&over));
    stage.refused(scene, "an expired grant", &body, NOT_GRANTED)?;
    let closed = stage.granter.grant(GENERATION, LONG_MS, None)?;
    stage.granted(&closed)?;
    stage.granter.close(&closed)?;
    let body = whole(&mut stage.data, &by(&closed));
    stage.refused(scene, "a closed grant", &body, NOT_GRANTED)?;
    let current = stage.granter.grant(GENERATION, LONG_MS, None)?;
    for generation in [GENERATION - 1, GENERATION + 1, 0, u64::MAX] {
        let body = whole(&mut stage.data, &WriteBy { generation, ..by(&current) });
        stage.refused(scene, "another generation", &body, NOT_GRANTED)?;
    }
    stage.granted(&current)?;
    stage.granter.serve()?;
    let body = whole(&mut stage.data, &by(&current));
    stage.refused(scene, "memory that was published", &body, NOT_GRANTED)?;
    let opened = stage.granter.grant(GENERATION, LONG_MS, None);
    scene.expect(opened.is_err(), || "a grant was opened over a published version".to_owned());
    stage.finish(scene);
    Ok(())
}

/// The writer itself turns bad: it writes where its grant ends, and more than it says.
pub(super) fn out_of_range(scene: &mut Scene) -> Result<()> {
    const END: u64 = GRANTED_BYTES;
    let mut stage = stage(scene)?;
    let grant = stage.granter.grant(GENERATION, LONG_MS, None)?;
    let good = [0, 0, 1, 1, 1];
    let places: [(&str, Rectangle, u64, u8); 10] = [
        ("one byte too far", [0, 1, END, 1, END], END, OUT_OF_RANGE),
        ("behind the end", [0, END, 1, 1, 1], 1, OUT_OF_RANGE),
        ("before the beginning", [0, u64::MAX, 1, 1, 1], 1, OUT_OF_RANGE),
        ("a row too many", [0, 0, END / 2, 3, END / 2], END / 2 * 3, OUT_OF_RANGE),
        ("rows that overflow", [0, 0, 2, u64::MAX / 2 + 2, 1], 2, OUT_OF_RANGE),
        ("a pitch that overflows", [0, 0, 1, 3, u64::MAX / 2 + 1], 3, OUT_OF_RANGE),
        ("another region", [1, 0, 1, 1, 1], 1, OUT_OF_RANGE),
        ("fewer bytes than it says", [0, 0, 9, 1, 9], 3, OUT_OF_RANGE),
        ("more bytes than it says", [0, 0, 3, 1, 3], 9, OUT_OF_RANGE),
        ("rows without end", [0, 0, 1, 1 << 40, 0], 1, TOO_MUCH),
    ];
    for (what, place, bytes, code) in places {
        let bytes = vec![0xff; 1 + bytes as usize];
        let body = stage.data.write_body(&by(&grant), &[good, place], &bytes);
        stage.refused(scene, what, &body, code)?;
    }
    stage.granted(&grant)?;
    stage.finish(scene);
    Ok(())
}

/// What an honest writer has sent is sent again, on its own connection and on another.
pub(super) fn replayed(scene: &mut Scene) -> Result<()> {
    let mut stage = stage(scene)?;
    let grant = stage.granter.grant(GENERATION, LONG_MS, None)?;
    let overheard = [stage.granted(&grant)?, stage.granted(&grant)?];
    for body in &overheard {
        stage.refused(scene, "a second time on its connection", body, NOT_GRANTED)?;
        stage.data.writes += 1;
    }
    let ahead = whole(&mut stage.data, &by(&grant));
    let address = stage.granter.data_address.clone();
    let token = scene.workspace.token.clone();
    let own = std::mem::replace(&mut stage.data, Data::connect(&address, Some(&token))?);
    for body in overheard.iter().chain([&ahead]) {
        stage.refused(scene, "on another connection", body, NOT_GRANTED)?;
    }
    stage.data = own;
    let answer = stage.data.request(WRITE, &ahead)?;
    ensure!(answer.kind == WRITTEN, "its own connection takes it: {}", answer.kind);
    ensure!(stage.granter.changed()?.granted == GRANTED_BYTES, "an honest write was lost");
    stage.finish(scene);
    Ok(())
}
