//! Readers that take all places of a data port, and all descriptors of its process.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::attacker::data::{Data, IDENTIFY, READ, ask};
use crate::attacker::forge::export_at;
use crate::attacker::wire::SourceShard;
use crate::scene::victims::Honest;
use crate::scene::{MODEL_BYTES, Scene};

const MODEL: &str = "target";
/// As many as a data port has places.
const SIPPING: usize = 1_024;
/// Reads that each reader asks for: more bytes than sockets buffer.
const READS: usize = 16;
/// Bytes that a sipping reader's socket buffers.
const BUFFER: usize = 4 << 10;
/// How often readers without a place try again, and how long each waits for its first bytes.
const ROUNDS: usize = 3;
const FIRST: Duration = Duration::from_secs(2);
/// How long churning readers leave a request unfinished: less than a port waits for the rest.
const CHURN: Duration = Duration::from_millis(500);
/// Idle readers, and descriptors that the trainer may have.
const IDLE: usize = 600;
const DESCRIPTORS: u32 = 256;
/// After so many readers that were turned away, no more are tried.
const TURNED_AWAY: usize = 20;
/// A port that takes no connection within this time is full.
const KNOCK: Duration = Duration::from_secs(1);

/// The trainer whose places are taken, and where its data port is.
fn target(scene: &mut Scene, descriptors: Option<u32>) -> Result<(Honest, SourceShard)> {
    scene.begin()?;
    let mut settings = scene.worker(MODEL, "trainer", "trainer");
    settings.descriptors = descriptors;
    let mut trainer = scene.start(settings)?;
    trainer.must("publish 1")?;
    scene.watch(&trainer);
    let copy = scene.control()?.copy_of(MODEL, "trainer")?;
    Ok((trainer, copy.shards.into_iter().next().context("a shard")?))
}

/// Honest work during the attack: two rollouts read, the trainer opens another handle.
fn meanwhile(scene: &mut Scene, trainer: &mut Honest) -> Result<()> {
    let opened = trainer.ask("open second");
    scene.note(format!("the trainer's own open: {:.0} ms", opened.ms));
    scene.expect(opened.ok, || format!("the trainer's own open: {}", opened.said()));
    for (name, tcp) in [("over-tcp", true), ("by-itself", false)] {
        let mut settings = scene.worker(MODEL, name, "rollout");
        settings.tcp = tcp;
        let mut reader = scene.start(settings)?;
        let read = reader.ask("replicate 1 60000");
        scene.note(format!("an honest reader {name}: {:.0} ms", read.ms));
        scene.expect(read.ok && read.right, || format!("{name}: {}", read.said()));
        // The next rollout has to read from the trainer, not from this one.
        reader.ask("close");
    }
    Ok(())
}

pub(super) fn sipping(scene: &mut Scene) -> Result<()> {
    let (mut trainer, shard) = target(scene, None)?;
    scene.descriptors = SIPPING + 200;
    let (mut readers, mut refused) = (Vec::new(), 0);
    let started = Instant::now();
    // A reader that lost its place to a later one tries again.
    for _ in 0..ROUNDS {
        refused = SIPPING - readers.len();
        readers.extend((0..refused).filter_map(|_| sipper(scene, &shard).ok()));
        readers.retain_mut(|reader: &mut Data| is_served(reader));
    }
    scene.note(format!(
        "{} readers sip, {refused} were turned away, within {:.1} s",
        readers.len(),
        started.elapsed().as_secs_f64()
    ));
    let stop = Arc::new(AtomicBool::new(false));
    let sipping = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || sip(readers, &stop)
    });
    meanwhile(scene, &mut trainer)?;
    let unpublished = trainer.ask("unpublish");
    scene.note(format!("unpublish: {:.0} ms", unpublished.ms));
    scene.expect(unpublished.ok, || format!("unpublish: {}", unpublished.said()));
    stop.store(true, Ordering::Relaxed);
    let left = sipping.join().unwrap_or_default();
    scene.note(format!("{left} of them were never cut off"));
    scene.keep(trainer);
    Ok(())
}

/// A reader that asks for more bytes than it will ever read.
fn sipper(scene: &Scene, shard: &SourceShard) -> Result<Data> {
    let id = export_at(shard.export, shard.generation);
    let request = ask(id, shard.generation, &[[0, 0, MODEL_BYTES as u64, 1, 0]]);
    let mut reader = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
    rustix::net::sockopt::set_socket_recv_buffer_size(&reader.socket, BUFFER)?;
    (0..READS).try_for_each(|_| reader.say(READ, &request))?;
    reader.socket.set_read_timeout(Some(FIRST))?;
    Ok(reader)
}

/// Whether the reader's answer has begun, so that its place is busy.
fn is_served(reader: &mut Data) -> bool {
    let _ = reader.socket.set_nonblocking(false);
    let served = reader.socket.read_exact(&mut [0; 64]).is_ok();
    reader.socket.set_nonblocking(true).is_ok() && served
}

/// Reads a few bytes of each connection, again and again, so that the port can't take any for idle. Returns how many
/// are still connected.
fn sip(mut readers: Vec<Data>, stop: &AtomicBool) -> usize {
    while !stop.load(Ordering::Relaxed) {
        readers.retain_mut(|reader| match reader.socket.read(&mut [0; 512]) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == std::io::ErrorKind::WouldBlock,
        });
        std::thread::sleep(Duration::from_secs(1));
    }
    readers.len()
}

/// Connections that the peer resets at once, which needs no token.
pub(super) fn reset(scene: &mut Scene) -> Result<()> {
    let (mut trainer, shard) = target(scene, None)?;
    // A reader with the token, at rest, as honest readers are between two updates.
    let mut member = Data::connect(&shard.data_address, Some(&scene.workspace.token))?;
    let address: SocketAddr = shard.data_address.parse()?;
    let stop = Arc::new(AtomicBool::new(false));
    let resetting = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let mut resets = 0;
            while !stop.load(Ordering::Relaxed) {
                resets += usize::from(knock_and_reset(&address).is_ok());
            }
            resets
        }
    });
    meanwhile(scene, &mut trainer)?;
    stop.store(true, Ordering::Relaxed);
    let resets = resetting.join().unwrap_or_default();
    scene.note(format!("{resets} connections were reset"));
    let kept = member.request(IDENTIFY, &[]).is_ok();
    scene.expect(kept, || "they cost a reader with the token its place".to_owned());
    scene.keep(trainer);
    Ok(())
}

fn knock_and_reset(address: &SocketAddr) -> Result<()> {
    let socket = TcpStream::connect_timeout(address, KNOCK)?;
    Ok(rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO))?)
}

/// Readers that always have begun a request, and never leave one unfinished for long.
pub(super) fn churning(scene: &mut Scene) -> Result<()> {
    let (mut trainer, shard) = target(scene, None)?;
    scene.descriptors = SIPPING + 200;
    let token = scene.workspace.token.clone();
    let (stop, turned_away) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let churning = std::thread::spawn({
        let (stop, turned_away) = (Arc::clone(&stop), Arc::clone(&turned_away));
        move || {
            let mut readers: Vec<Data> = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                readers.retain_mut(|reader| ask_and_begin(reader).is_ok());
                let missing = SIPPING - readers.len();
                let mut come: Vec<_> = (0..missing)
                    .map_while(|_| Data::connect(&shard.data_address, Some(&token)).ok())
                    .collect();
                let all = come.len() == missing;
                turned_away.fetch_or(!all || missing == 0, Ordering::Relaxed);
                come.retain_mut(|reader| reader.say_first().is_ok());
                readers.append(&mut come);
                std::thread::sleep(CHURN);
            }
            readers.len()
        }
    });
    while !turned_away.load(Ordering::Relaxed) && !scene.is_over() {
        std::thread::sleep(CHURN);
    }
    meanwhile(scene, &mut trainer)?;
    stop.store(true, Ordering::Relaxed);
    let left = churning.join().unwrap_or_default();
    scene.note(format!("{left} of them had a place at the end"));
    scene.keep(trainer);
    Ok(())
}

/// Finishes the reader's request, reads the answer, and begins the next request.
fn ask_and_begin(reader: &mut Data) -> Result<()> {
    reader.say_rest()?;
    reader.hear()?;
    reader.say_first()
}

pub(super) fn idle(scene: &mut Scene) -> Result<()> {
    let (mut trainer, shard) = target(scene, Some(DESCRIPTORS))?;
    let mut readers = Vec::new();
    let mut refused = 0;
    for _ in 0..IDLE {
        match Data::connect(&shard.data_address, Some(&scene.workspace.token)) {
            Ok(reader) => readers.push(reader),
            Err(_) => refused += 1,
        }
        // The port seems to be closed to all: more readers are of no use.
        if refused > TURNED_AWAY {
            break;
        }
    }
    scene.note(format!("{} idle readers were admitted, {refused} turned away", readers.len()));
    // Strangers that connect and say nothing take a descriptor each, too.
    let address = shard.data_address.parse()?;
    let knocks: Vec<_> =
        (0..IDLE).map_while(|_| TcpStream::connect_timeout(&address, KNOCK).ok()).collect();
    scene.note(format!("{} more only knock", knocks.len()));
    meanwhile(scene, &mut trainer)?;
    drop((readers, knocks));
    scene.keep(trainer);
    Ok(())
}
