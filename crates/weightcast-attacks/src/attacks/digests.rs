//! Requests of a few bytes that ask for work without end.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::attacker::data::{AWAIT, DIGEST, Data, READ, Rectangle, ask, numbers};
use crate::attacker::forge::export_at;
use crate::scene::usage::Usage;
use crate::scene::victims::Honest;
use crate::scene::{Scene, busy};

const MODEL: &str = "target";
/// How long a process may take to notice that a reader is gone.
const GRACE: Duration = Duration::from_secs(1);
/// How long the CPU time of a process is counted.
const WINDOW: Duration = Duration::from_secs(3);
/// CPU seconds that heartbeats and the like may take of that.
const IDLE: f64 = 0.5;

/// A trainer and a rollout that hold version 1.
fn holders(scene: &mut Scene) -> Result<[Honest; 2]> {
    scene.begin()?;
    let (mut trainer, mut rollout) = (scene.trainer(MODEL)?, scene.rollout(MODEL, "rollout")?);
    trainer.must("publish 1")?;
    rollout.must("update 60000")?;
    scene.watch(&trainer);
    scene.watch(&rollout);
    Ok([trainer, rollout])
}

/// Threads by which a process may grow: its own readers come and go.
const THREADS: usize = 4;

/// Sends each request on a connection of its own, waits, and hangs up.
fn besiege(scene: &mut Scene, holder: &Honest, requests: &[(u8, Rectangle, &[u64])]) -> Result<()> {
    let copy = scene.control()?.copy_of(MODEL, &holder.settings.replica)?;
    let shard = copy.shards.first().context("a shard")?;
    let id = export_at(shard.export, shard.generation);
    let before = Usage::of(holder.id()).threads;
    let mut connections = Vec::new();
    for (kind, extent, placed) in requests {
        let mut data = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
        let mut body = ask(id, shard.generation, &[*extent]);
        body.extend(numbers(placed));
        data.say(*kind, &body)?;
        connections.push(data);
    }
    let during = busy(holder.id(), WINDOW);
    drop(connections);
    std::thread::sleep(GRACE);
    let after = busy(holder.id(), WINDOW);
    let name = holder.name();
    scene
        .note(format!("{name}: {during:.2} CPU s within {WINDOW:?}, {after:.2} once they hung up"));
    let left = Usage::of(holder.id()).threads.saturating_sub(before);
    scene.expect(left <= THREADS, || format!("{name}: {left} threads serve whoever has left"));
    scene.expect(after < IDLE, || {
        format!("{name} works on: {after:.2} CPU s in {WINDOW:?} after the attacker left")
    });
    Ok(())
}

/// Unpublishing ends the work too, and the holder can close.
fn leave(scene: &mut Scene, mut holder: Honest) {
    let unpublished = holder.ask("unpublish");
    let name = holder.name();
    scene.note(format!("{name}: unpublish took {:.0} ms", unpublished.ms));
    scene.expect(unpublished.ok, || format!("{name} can't unpublish: {}", unpublished.said()));
    let fenced = busy(holder.id(), WINDOW);
    scene.expect(fenced < IDLE, || {
        format!("{name} works on: {fenced:.2} CPU s in {WINDOW:?} after unpublish")
    });
    let closed = holder.ask("close");
    scene.expect(closed.ok, || format!("{name} can't close: {}", closed.said()));
}

pub(super) fn empty_rows(scene: &mut Scene) -> Result<()> {
    let holders = holders(scene)?;
    let endless: Rectangle = [0, 0, 0, u64::MAX, 0];
    let mut requests: Vec<(u8, Rectangle, &[u64])> = vec![(AWAIT, endless, &[]); 10];
    requests.extend(vec![(READ, endless, [].as_slice()); 10]);
    requests.extend(vec![(DIGEST, endless, [0, 0].as_slice()); 4]);
    for holder in holders {
        besiege(scene, &holder, &requests)?;
        leave(scene, holder);
    }
    Ok(())
}

pub(super) fn tiny_rows(scene: &mut Scene) -> Result<()> {
    let holders = holders(scene)?;
    let tiny: Rectangle = [0, 0, 1, 1 << 30, 0];
    let small: Rectangle = [0, 0, 1, 64 << 20, 0];
    let mut requests: Vec<(u8, Rectangle, &[u64])> = vec![(DIGEST, tiny, &[0, 0]); 4];
    requests.extend(vec![(READ, small, [].as_slice()); 4]);
    requests.extend(vec![(AWAIT, small, [].as_slice()); 4]);
    for holder in holders {
        besiege(scene, &holder, &requests)?;
        leave(scene, holder);
    }
    Ok(())
}
