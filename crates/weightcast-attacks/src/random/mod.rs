//! Well-formed nonsense for a given time: frames, requests and data-port requests with plausible names and small
//! numbers that collide, against a server that checks itself after every event. Honest workers go on meanwhile.

mod frames;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use self::frames::{Speaker, call_at_random};
use crate::attacker::control::ControlClient;
use crate::attacker::data::{AWAIT, DESCRIBE, DIGEST, Data, IDENTIFY, NOTE, READ, ask, numbers};
use crate::attacker::forge::{Dice, export_at};
use crate::scene::Scene;
use crate::scene::usage::Usage;
use crate::scene::victims::Honest;

/// How long, from which seed.
#[derive(Args)]
pub(crate) struct RandomArguments {
    /// Minutes
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// What all of it is made from; drawn and printed by default
    #[arg(long)]
    seed: Option<u64>,
    /// Streams that are spoken on at once
    #[arg(long, default_value_t = 12)]
    streams: u64,
}

/// From this share of the time on, memory must not grow any more.
const SETTLED: f64 = 0.25;
/// Megabytes by which memory may grow all the same: allocators and tables breathe.
const GROWTH_MB: f64 = 64.0;
/// The same for descriptors.
const DESCRIPTORS: usize = 64;
/// How often a line is printed.
const SAY: Duration = Duration::from_secs(10);
/// Frames between two rests: honest workers share the machine.
const BURST: u64 = 50;
const REST: Duration = Duration::from_millis(5);
const MODEL: &str = "target";

/// The state that all speakers share.
#[derive(Default)]
struct Spoken {
    stop: AtomicBool,
    frames: AtomicU64,
    requests: AtomicU64,
    reads: AtomicU64,
}

pub(crate) fn run(arguments: &RandomArguments) -> Result<ExitCode> {
    let drawn = u64::from(u32::from_le_bytes(crate::attacker::forge::random()));
    let seed = arguments.seed.unwrap_or(drawn);
    println!("seed {seed}, {} minutes", arguments.minutes);
    let started = Instant::now();
    let mut scene = Scene::new(&["--paranoid", "--drain-deadline", "2"])?;
    scene.begin()?;
    let (mut trainer, mut rollout) = (scene.trainer(MODEL)?, scene.rollout(MODEL, "rollout")?);
    trainer.must("publish 1")?;
    rollout.must("update 60000")?;
    let spoken = Arc::<Spoken>::default();
    let threads = speakers(&scene, seed, arguments.streams, &spoken)?;
    let watched = watch(&mut scene, &[&trainer, &rollout], arguments, &spoken);
    spoken.stop.store(true, Ordering::Relaxed);
    for thread in threads {
        let ended = thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("it panicked")));
        ended.context("a speaker could not go on")?;
    }
    watched?;
    // The frames named neither worker's replica, so both are as they were.
    let held = rollout.ask("right 1");
    scene.expect(held.right, || format!("the holder's memory changed: {held:?}"));
    let unpublished = trainer.ask("unpublish");
    scene.expect(unpublished.ok, || format!("unpublish: {}", unpublished.said()));
    scene.keep(trainer);
    scene.keep(rollout);
    let busy = Usage::of(scene.server.id()).cpu_s;
    let report = scene.finish("random-frames", "11", started);
    println!(
        "{} frames, {} requests, {} data requests, {busy:.0} CPU s of the server; honest update: median {:.1} ms, p99 {:.1}, \
         max {:.1} ({} calls)",
        spoken.frames.load(Ordering::Relaxed),
        spoken.requests.load(Ordering::Relaxed),
        spoken.reads.load(Ordering::Relaxed),
        report.update.median,
        report.update.p99,
        report.update.max,
        report.update.calls,
    );
    report.succeeded.iter().for_each(|how| println!("WRONG: {how}"));
    println!("seed {seed}: {}", if report.succeeded.is_empty() { "held" } else { "NOT held" });
    Ok(if report.succeeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn speakers(
    scene: &Scene,
    seed: u64,
    streams: u64,
    spoken: &Arc<Spoken>,
) -> Result<Vec<JoinHandle<Result<()>>>> {
    let mut threads = Vec::new();
    for stream in 0..streams {
        let (control, spoken) = (scene.control()?, Arc::clone(spoken));
        let dice = Dice::new(seed.wrapping_mul(1_000).wrapping_add(stream));
        threads.push(std::thread::spawn(move || speak(&control, dice, &spoken)));
    }
    let (control, calls) = (scene.control()?, Arc::clone(spoken));
    let dice = Dice::new(seed.wrapping_add(1 << 40));
    threads.push(std::thread::spawn(move || request(&control, dice, &calls)));
    let (control, reads) = (scene.control()?, Arc::clone(spoken));
    let (dice, token) = (Dice::new(seed.wrapping_add(1 << 41)), scene.workspace.token.clone());
    threads.push(std::thread::spawn(move || read(&control, dice, &token, &reads)));
    Ok(threads)
}

/// Sends frames on streams, and opens streams again and again.
fn speak(control: &ControlClient, dice: Dice, spoken: &Spoken) -> Result<()> {
    let mut speaker = Speaker::new(dice);
    while !spoken.stop.load(Ordering::Relaxed) {
        for _ in 0..BURST {
            let taken = speaker.speak(control)?;
            spoken.frames.fetch_add(u64::from(taken), Ordering::Relaxed);
        }
        std::thread::sleep(REST);
    }
    Ok(())
}

/// Everything beside the stream.
fn request(control: &ControlClient, mut dice: Dice, spoken: &Spoken) -> Result<()> {
    while !spoken.stop.load(Ordering::Relaxed) {
        call_at_random(control, &mut dice);
        spoken.requests.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(REST);
    }
    Ok(())
}

/// Requests to the data ports of two holders.
fn read(control: &ControlClient, mut dice: Dice, token: &str, spoken: &Spoken) -> Result<()> {
    let shards: Vec<_> = ["trainer", "rollout"]
        .iter()
        .map(|replica| Ok(control.copy_of(MODEL, replica)?.shards.remove(0)))
        .collect::<Result<_>>()?;
    let mut connection = None;
    while !spoken.stop.load(Ordering::Relaxed) {
        let shard = &shards[dice.below(2) as usize];
        if connection.is_none() || dice.one_in(20) {
            connection = Some(Data::connect(&shard.data_address, Some(token))?);
        }
        let Some(data) = &mut connection else { continue };
        let generation = if dice.one_in(4) { dice.number() } else { shard.generation };
        let id = if dice.one_in(8) { dice.number() } else { export_at(shard.export, generation) };
        let kind = dice.pick(&[IDENTIFY, DESCRIBE, READ, READ, DIGEST, DIGEST, NOTE, AWAIT]);
        let mut body = match kind {
            IDENTIFY => Vec::new(),
            DESCRIBE | NOTE => numbers(&[id, generation]),
            _ => extents(&mut dice, id, generation, kind == DIGEST),
        };
        if dice.one_in(50) {
            body.truncate(dice.below(body.len() as u64 + 1) as usize);
        }
        // Mostly the answers are read. A connection that is cut is opened again.
        let answered = data.say(kind, &body).and_then(|()| data.hear());
        let more = answered.as_ref().is_ok_and(|answer| answer.kind == crate::attacker::data::DATA);
        if answered.is_err() || (more && data.hear().is_err()) || dice.one_in(30) {
            connection = None;
        }
        spoken.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(REST);
    }
    Ok(())
}

fn extents(dice: &mut Dice, id: u64, generation: u64, placed: bool) -> Vec<u8> {
    let mut body = ask(id, generation, &[]);
    for _ in 0..dice.below(5) {
        let mut size = |most: u64| match dice.below(6) {
            0 => dice.number(),
            _ => dice.below(most),
        };
        let (offset, row, rows, pitch) = (size(1 << 20), size(4 << 10), size(64), size(8 << 10));
        body.extend(numbers(&[u64::from(dice.one_in(9)), offset, row, rows, pitch]));
        if placed {
            body.extend(numbers(&[dice.number(), dice.number()]));
        }
    }
    body
}

/// Looks at the victims until the time is over, or something is wrong.
fn watch(
    scene: &mut Scene,
    holders: &[&Honest],
    arguments: &RandomArguments,
    spoken: &Spoken,
) -> Result<()> {
    let started = Instant::now();
    let end = Duration::from_secs_f64(arguments.minutes * 60.0);
    let mut processes = vec![("server".to_owned(), scene.server.id())];
    processes.extend(holders.iter().map(|honest| (honest.name(), honest.id())));
    let mut settled: Option<Vec<Usage>> = None;
    let mut said = Instant::now();
    while started.elapsed() < end && scene.server.lives() && !scene.is_over() {
        std::thread::sleep(Duration::from_millis(200));
        let now: Vec<Usage> = processes.iter().map(|(_, id)| Usage::of(*id)).collect();
        if settled.is_none() && started.elapsed() >= end.mul_f64(SETTLED) {
            settled = Some(now.clone());
        }
        if said.elapsed() >= SAY {
            said = Instant::now();
            let each = processes.iter().zip(&now).map(|((name, _), u)| {
                format!("{name} {:.0} MB, {} descriptors", u.rss_mb, u.descriptors)
            });
            println!(
                "{:>5.0} s: {} frames, {} versions; {}",
                started.elapsed().as_secs_f64(),
                spoken.frames.load(Ordering::Relaxed),
                scene.rounds(),
                each.collect::<Vec<_>>().join("; ")
            );
        }
    }
    for ((name, id), before) in processes.iter().zip(settled.unwrap_or_default()) {
        let after = Usage::of(*id);
        let (grown, more) =
            (after.rss_mb - before.rss_mb, after.descriptors.saturating_sub(before.descriptors));
        scene
            .expect(grown < GROWTH_MB, || format!("{name} grew by {grown:.0} MB after it settled"));
        scene.expect(more < DESCRIPTORS, || format!("{name} has {more} more descriptors"));
    }
    Ok(())
}
