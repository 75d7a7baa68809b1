//! More replicas than an answer about all of them can name.

use anyhow::Result;

use crate::attacker::control::{RogueSession, open};
use crate::attacker::wire::{Open, Role};
use crate::scene::Scene;

const REPLICAS: usize = 4_800;
/// Sessions of one connection: fewer than the requests that a server takes on one, and each session is a request.
const PER_CONNECTION: usize = 12;
const AT_ONCE: usize = 8;
/// The longest allowed length of a name.
const NAME: usize = 500;

pub(super) fn many(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    scene.descriptors = REPLICAS / PER_CONNECTION + 200;
    let mut holder = scene.trainer("crowd")?;
    holder.must("publish 1")?;
    let mut reader = scene.rollout("crowd", "reader")?;
    reader.must("update 60000")?;
    let copy = scene.control()?.copy_of("crowd", "trainer")?;
    let layout = copy.shards[0].layout.clone();
    let connections: Vec<usize> = (0..REPLICAS / PER_CONNECTION).collect();
    let mut crowd: Vec<RogueSession> = Vec::new();
    for batch in connections.chunks(AT_ONCE) {
        let threads: Vec<_> = batch
            .iter()
            .map(|&connection| {
                let (control, layout) = (scene.control()?, layout.clone());
                let catalog = copy.catalog.clone();
                Ok(std::thread::spawn(move || {
                    let numbers = 0..PER_CONNECTION;
                    let enter = |number| {
                        let mut session =
                            control.open(long(connection * PER_CONNECTION + number)).ok()?;
                        let bytes = crate::scene::MODEL_BYTES as u64;
                        session.register(&layout, 1, bytes).ok()?;
                        session.publish(1, &catalog, 1).ok()?;
                        Some(session)
                    };
                    numbers.map_while(enter).collect::<Vec<_>>()
                }))
            })
            .collect::<Result<_>>()?;
        let entered = threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default());
        let before = crowd.len();
        crowd.extend(entered);
        if crowd.len() == before {
            break;
        }
    }
    scene.note(format!("{} of {REPLICAS} replicas were let in", crowd.len()));
    // The command line must be able to read the server's status.
    let status = status(scene);
    let failed = status.err().map(|error| format!("status: {error:#}"));
    scene.expect(failed.is_none(), || failed.unwrap_or_default());
    for command in ["list", "unpublish", "publish 2", "unpublish"] {
        let reply = holder.ask(command);
        scene.note(format!("{command}: {:.0} ms", reply.ms));
        scene.expect(reply.ok, || format!("the holder's {command}: {}", reply.said()));
    }
    let listed = reader.ask("list");
    scene.expect(listed.ok, || format!("a rollout's list: {}", listed.said()));
    scene.keep(holder);
    scene.keep(reader);
    drop(crowd);
    Ok(())
}

/// A replica whose names have the longest allowed length.
fn long(number: usize) -> Open {
    let pad = "x".repeat(NAME);
    Open {
        host: pad.clone(),
        datacentre: pad.clone(),
        ..open("crowd", &format!("{number}-{pad}")[..NAME], Role::Trainer)
    }
}

/// Asks `weightcast status`.
fn status(scene: &Scene) -> Result<()> {
    let output = scene.workspace.run(&["status", "--server", &scene.server.address, "--json"])?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}
