//! One process of a publish and an update, which does one step for each line that it reads: `.ci/path` looks in
//! between which functions have run.
//!
//! `path server`, `path trainer ADDRESS`, `path rollout ADDRESS [tcp]`. Each step is answered with a line.

use std::io::{BufRead, Write};
use std::time::Duration;

use weightcast::plan::{DType, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{LayoutSource, Options, Replica, Role, Selector, ServeConfig, ShardHandle, serve};

const SOON: Duration = Duration::from_secs(60);
/// So long that no heartbeat falls into a step.
const LEASE: Duration = Duration::from_secs(600);
const NAMES: [&str; 3] = ["q", "k", "v"];
const SIDE: u64 = 1_024;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server"] => serve_until_the_end(),
        ["trainer", server] => trainer(&open("trainer", Role::Trainer, server, Way::Auto)?),
        ["rollout", server] => rollout(&open("rollout", Role::Rollout, server, Way::Auto)?),
        ["rollout", server, "tcp"] => rollout(&open("rollout", Role::Rollout, server, Way::Tcp)?),
        _ => Err("one of: server, trainer ADDRESS, rollout ADDRESS [tcp]".into()),
    }
}

fn serve_until_the_end() -> Result<(), Failure> {
    let server = serve(ServeConfig { lease: LEASE, ..ServeConfig::default() })?;
    answer(server.address())?;
    for _ in std::io::stdin().lock().lines() {}
    Ok(())
}

fn open(name: &str, role: Role, server: &str, way: Way) -> Result<ShardHandle, Failure> {
    let options = Options { server: Some(server.to_owned()), way, ..Options::new(role) };
    Ok(ShardHandle::open("policy", Replica::new(name, 0, 1), &options)?)
}

/// Three tensors, each in a buffer of its own.
fn trainer(handle: &ShardHandle) -> Result<(), Failure> {
    let mut builder = LayoutBuilder::new();
    for name in NAMES {
        builder.add(name, DType::BF16, &[SIDE, SIDE], vec![part(name)], 0);
    }
    let bytes = vec![1_u8; 2 * (SIDE * SIDE) as usize];
    let regions = NAMES.iter().map(|_| Region::from_bytes(&bytes)).collect::<Result<_, _>>()?;
    handle.register(LayoutSource::Known(builder.build()?), regions, SOON)?;
    steps(|step| {
        match step.split_once(' ') {
            Some(("publish", version)) => {
                handle.publish(version.parse()?, SOON)?;
                handle.wait_sealed(SOON)?;
            }
            _ => handle.unpublish(SOON)?,
        }
        Ok(())
    })
}

/// The same three tensors, fused in one buffer.
fn rollout(handle: &ShardHandle) -> Result<(), Failure> {
    let mut builder = LayoutBuilder::new();
    let parts = NAMES.iter().map(|name| part(name)).collect();
    builder.add("qkv", DType::BF16, &[3 * SIDE, SIDE], parts, 0);
    let region = Region::allocate(3 * 2 * (SIDE * SIDE) as usize)?;
    handle.register(LayoutSource::Known(builder.build()?), vec![region], SOON)?;
    steps(|_| {
        let updated = handle.update(Selector::Latest, false, SOON)?;
        if updated.changed { Ok(()) } else { Err("nothing newer was there".into()) }
    })
}

fn part(name: &str) -> Part {
    Part::new(name).shape([SIDE, SIDE])
}

/// Answers that it is ready, and each line once its step is done.
fn steps(step: impl Fn(&str) -> Result<(), Failure>) -> Result<(), Failure> {
    answer("ready")?;
    for line in std::io::stdin().lock().lines() {
        step(&line?)?;
        answer("done")?;
    }
    Ok(())
}

fn answer(line: &str) -> Result<(), Failure> {
    println!("{line}");
    Ok(std::io::stdout().flush()?)
}
