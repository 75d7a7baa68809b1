//! An honest worker: one handle over memory with a known pattern, told by its standard input what
//! to do. Answers each command by one JSON line: how it went, how long it took, whether the bytes
//! are right. It keeps memory that it never offered to anybody, the secret.
//!
//! `weightcast-attacks` starts it, beside real servers, and attacks.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::{Value, json};
use weightcast::plan::{DType, Layout, LayoutBuilder, Part};
use weightcast::transport::{Region, Way};
use weightcast::{
    EpochPolicy, LayoutSource, Options, Replica, Role, Selector, ShardHandle, Updated,
};

/// Who it is; the first argument, as JSON.
#[derive(Deserialize)]
struct Settings {
    server: String,
    token_file: Option<String>,
    model: String,
    replica: String,
    role: String,
    bytes: usize,
    /// What the secret is made from.
    secret: u64,
    #[serde(default)]
    retain: u32,
    #[serde(default)]
    new_epoch: bool,
    #[serde(default)]
    tcp: bool,
    #[serde(default)]
    data_bind: Option<String>,
    #[serde(default)]
    plan_cache: Option<String>,
    #[serde(default)]
    reconnect_s: Option<u64>,
}

const SECRET_BYTES: usize = 64 << 10;
const TENSOR: &str = "weights";

struct Worker {
    settings: Settings,
    handle: ShardHandle,
    region: Region,
    secret: Vec<u8>,
    others: Vec<ShardHandle>,
}

fn main() -> Result<()> {
    let settings = std::env::args().nth(1).context("the settings, as JSON")?;
    let settings: Settings = serde_json::from_str(&settings).context("understand the settings")?;
    let secret = pattern(settings.secret, SECRET_BYTES);
    let started = Instant::now();
    let mut worker = match Worker::open(settings, secret) {
        Ok(worker) => worker,
        Err(error) => return say(json!({"ok": false, "error": format!("{error:#}")})),
    };
    say(json!({
        "ok": true,
        "ms": milliseconds(started),
        "address": worker.secret.as_ptr().expose_provenance() as u64,
        "found": SECRET_BYTES,
    }))?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let started = Instant::now();
        let mut reply = match worker.obey(&words) {
            Ok(reply) => reply,
            Err(error) => json!({"ok": false, "error": format!("{error:#}")}),
        };
        reply["ms"] = json!(milliseconds(started));
        say(reply)?;
        if words.first() == Some(&"close") {
            break;
        }
    }
    Ok(())
}

impl Worker {
    fn open(settings: Settings, secret: Vec<u8>) -> Result<Self> {
        let role = if settings.role == "trainer" { Role::Trainer } else { Role::Rollout };
        let handle = open(&settings, &settings.model, &settings.replica, role)?;
        let region = Region::from_bytes(&vec![0; settings.bytes]).context("allocate")?;
        let layout = LayoutSource::Known(layout(settings.bytes)?);
        handle.register(layout, vec![region.clone()], SOON)?;
        Ok(Self { settings, handle, region, secret, others: Vec::new() })
    }

    fn obey(&mut self, words: &[&str]) -> Result<Value> {
        match *words {
            ["publish", number] => self.publish(number.parse()?),
            ["unpublish"] => {
                self.handle.unpublish(SOON)?;
                Ok(json!({"ok": true}))
            }
            ["update", ms] => {
                let updated = self.handle.update(Selector::Latest, false, limit(ms)?)?;
                Ok(self.updated(&updated))
            }
            ["replicate", "latest", ms] => {
                let updated = self.handle.replicate(Selector::Latest, limit(ms)?)?;
                Ok(self.updated(&updated))
            }
            ["replicate", number, ms] => {
                let number = Selector::Exact(number.parse()?);
                let updated = self.handle.replicate(number, limit(ms)?)?;
                Ok(self.updated(&updated))
            }
            ["list"] => {
                let listing = self.handle.list(SOON)?;
                Ok(json!({"ok": true, "found": listing.versions.len()}))
            }
            ["right", number] => {
                let right = self.region.to_vec() == pattern(number.parse()?, self.settings.bytes);
                Ok(json!({"ok": true, "right": right}))
            }
            // How much of another process's secret lies in the registered memory.
            ["holds", seed] => {
                let memory = self.region.to_vec();
                let secret = pattern(seed.parse()?, SECRET_BYTES);
                let same = memory.iter().zip(&secret).filter(|(one, other)| one == other);
                Ok(json!({"ok": true, "found": same.count()}))
            }
            ["open", name] => {
                let handle = open(&self.settings, &self.settings.model, name, Role::Rollout)?;
                self.others.push(handle);
                Ok(json!({"ok": true}))
            }
            ["close"] => {
                self.others.clear();
                self.handle.close(SOON);
                Ok(json!({"ok": true}))
            }
            _ => bail!("no such command: {words:?}"),
        }
    }

    /// Fills the memory with a version, and publishes it as the only one.
    fn publish(&self, number: u64) -> Result<Value> {
        if self.handle.version().is_some() {
            self.handle.unpublish(SOON)?;
        }
        self.region.write_at(0, &pattern(number, self.settings.bytes))?;
        let version = self.handle.publish(number, SOON)?;
        self.handle.wait_sealed(SOON)?;
        Ok(json!({"ok": true, "version": [version.epoch.0, version.number]}))
    }

    fn updated(&self, updated: &Updated) -> Value {
        let Some(version) = updated.version else {
            return json!({"ok": true, "changed": updated.changed});
        };
        let right = self.region.to_vec() == pattern(version.number, self.settings.bytes);
        json!({
            "ok": true,
            "changed": updated.changed,
            "version": [version.epoch.0, version.number],
            "right": right,
            "source": updated.source,
            "way": updated.transfer.way,
        })
    }
}

/// Every call ends sooner, or the attack has succeeded.
const SOON: Duration = Duration::from_secs(60);

fn open(settings: &Settings, model: &str, replica: &str, role: Role) -> Result<ShardHandle> {
    let mut options = Options {
        server: Some(settings.server.clone()),
        token_file: settings.token_file.as_ref().map(Into::into),
        retain: if role == Role::Trainer { settings.retain } else { 0 },
        data_bind: settings.data_bind.clone(),
        plan_cache: settings.plan_cache.as_ref().map(Into::into),
        ..Options::new(role)
    };
    if settings.new_epoch {
        options.epoch = EpochPolicy::New;
    }
    if settings.tcp {
        options.way = Way::Tcp;
    }
    if let Some(seconds) = settings.reconnect_s {
        options.reconnect = Duration::from_secs(seconds);
    }
    Ok(ShardHandle::open(model, Replica::new(replica, 0, 1), &options)?)
}

fn layout(bytes: usize) -> Result<Layout> {
    let shape = [bytes as u64];
    let mut builder = LayoutBuilder::new();
    builder.add(TENSOR, DType::U8, &shape, vec![Part::new(TENSOR).shape(shape)], 0);
    Ok(builder.build()?)
}

/// The bytes of a version, or of a secret: SplitMix64 from a seed. The attacker knows it too.
fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let word = |i: u64| {
        let mut z = (seed << 32 | i).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)).to_le_bytes()
    };
    (0..bytes.div_ceil(8) as u64).flat_map(word).take(bytes).collect()
}

fn limit(milliseconds: &str) -> Result<Duration> {
    Ok(Duration::from_millis(milliseconds.parse()?))
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn say(reply: Value) -> Result<()> {
    println!("{reply}");
    io::stdout().flush()?;
    Ok(())
}
