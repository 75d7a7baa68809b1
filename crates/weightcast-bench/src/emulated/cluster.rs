//! Workers on emulated hosts, and the reference server that they share.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

use super::network::{EmulatedNetwork, Shape};
use super::orders::{Order, WorkerReply, WorkerStart, WorkerUpdate};
use crate::base::measure::cpu_seconds;
use crate::base::program::{ServerProcess, command};

/// One shard in a process of its own; killed when dropped.
pub(crate) struct WorkerProcess {
    process: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
    name: String,
}

/// All shards of a replica, each on a host of its own unless they share one.
pub(crate) struct WorkerGroup {
    pub(crate) name: String,
    pub(crate) workers: Vec<WorkerProcess>,
}

/// A server and the hosts around it.
pub(crate) struct EmulatedCluster {
    // Dropped first: the server's process must be gone before its host is removed.
    server: ServerProcess,
    /// `None` if everything runs on this machine's loopback.
    network: Option<EmulatedNetwork>,
    shards: u32,
    bytes: u64,
}

/// How to start a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct GroupSpec {
    /// Host of the first shard; the next hosts are for the other shards.
    pub(crate) host: usize,
    pub(crate) datacentre: usize,
    pub(crate) trainer: bool,
    pub(crate) spot: bool,
    /// Whether the group's updates leave crossings to a seed replica.
    pub(crate) offload_seeding: bool,
    /// Whether all shards are on the first one's host.
    pub(crate) one_host: bool,
    /// How many tensors each shard holds whole.
    pub(crate) replicated: u64,
}

impl EmulatedCluster {
    /// Builds a network with a server. Every replica will have this many shards and bytes.
    pub(crate) fn start(shape: &Shape, shards: u32, bytes: u64, serve: &[&str]) -> Result<Self> {
        let network = EmulatedNetwork::build(shape)?;
        let address = format!("{}:7700", network.server_address());
        let mut arguments = vec!["--address", &address, "--insecure-no-auth"];
        arguments.extend(serve);
        let server = ServerProcess::start(Some(&network.server()), &arguments)?;
        Ok(Self { server, network: Some(network), shards, bytes })
    }

    /// The same without emulated hosts: workers read by any way.
    pub(crate) fn on_loopback(shards: u32, bytes: u64, serve: &[&str]) -> Result<Self> {
        let mut arguments = vec!["--address", "127.0.0.1:0"];
        arguments.extend(serve);
        let server = ServerProcess::start(None, &arguments)?;
        Ok(Self { server, network: None, shards, bytes })
    }

    /// The emulated hosts.
    pub(crate) fn network(&self) -> Result<&EmulatedNetwork> {
        self.network.as_ref().context("no hosts are emulated")
    }

    /// Starts a group and waits until all of its shards are registered.
    pub(crate) fn group(&self, name: &str, place: GroupSpec) -> Result<WorkerGroup> {
        let shards = 0..self.shards;
        let workers = shards.map(|shard| self.worker(name, shard, place));
        let mut group =
            WorkerGroup { name: name.to_owned(), workers: workers.collect::<Result<Vec<_>>>()? };
        for worker in &mut group.workers {
            ensure!(matches!(worker.reply()?, WorkerReply::Ready), "{name} did not get ready");
        }
        Ok(group)
    }

    fn worker(&self, name: &str, shard: u32, place: GroupSpec) -> Result<WorkerProcess> {
        let host = place.host + if place.one_host { 0 } else { shard as usize };
        let namespace = self.network.as_ref().map(|network| network.host(host));
        let mut worker =
            WorkerProcess::spawn(namespace.as_deref(), format!("{name} shard {shard}"))?;
        worker.tell(&WorkerStart {
            server: self.server.address().to_owned(),
            replica: name.to_owned(),
            shard,
            num_shards: self.shards,
            trainer: place.trainer,
            spot: place.spot,
            offload_seeding: place.offload_seeding,
            datacentre: format!("dc{}", place.datacentre),
            host: format!("host{host}"),
            bind: self.network.as_ref().map(|network| network.address(host)),
            bytes: self.bytes,
            replicated: place.replicated,
        })?;
        Ok(worker)
    }

    /// The readers that the server knows, each with its source.
    pub(crate) fn edges(&self) -> Result<Vec<(String, String)>> {
        let ask = ["weightcast", "status", "--json", "--server", self.server.address()];
        let output =
            command(Some(&self.network()?.server()), &ask)?.output().context("ask status")?;
        let status: serde_json::Value = serde_json::from_slice(&output.stdout).context("status")?;
        let readers = status["models"][0]["readers"].as_array().cloned().unwrap_or_default();
        let name = |edge: &serde_json::Value, end: &str| edge[end].as_str().map(str::to_owned);
        Ok(readers.iter().filter_map(|e| Some((name(e, "reader")?, name(e, "source")?))).collect())
    }

    /// CPU seconds of the server.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.server.cpu_seconds()
    }
}

impl WorkerProcess {
    fn spawn(namespace: Option<&str>, name: String) -> Result<Self> {
        let mut process = command(namespace, &["worker"])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let orders = process.stdin.take().context("a piped standard input")?;
        let replies = BufReader::new(process.stdout.take().context("a piped standard output")?);
        Ok(Self { process, orders, replies, name })
    }

    /// Sends a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).ok().and_then(Pid::from_raw);
        let _already_gone = pid.map(|pid| kill_process(pid, signal));
    }

    fn tell(&mut self, what: &impl serde::Serialize) -> Result<()> {
        writeln!(self.orders, "{}", serde_json::to_string(what)?)
            .with_context(|| format!("order {}", self.name))
    }

    fn reply(&mut self) -> Result<WorkerReply> {
        let mut line = String::new();
        self.replies.read_line(&mut line).with_context(|| format!("hear {}", self.name))?;
        if line.is_empty() {
            bail!("{} ended", self.name);
        }
        match serde_json::from_str(&line).with_context(|| format!("understand {line:?}"))? {
            WorkerReply::Failed { error } => bail!("{}: {error}", self.name),
            reply => Ok(reply),
        }
    }
}

impl Drop for WorkerProcess {
    /// Kills the process at once: nothing that it holds is still needed.
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_gone = self.process.wait();
    }
}

impl WorkerGroup {
    /// Gives an order to all shards.
    pub(crate) fn order(&mut self, order: &Order) -> Result<()> {
        self.workers.iter_mut().try_for_each(|worker| worker.tell(order))
    }

    /// The answers of all shards.
    pub(crate) fn replies(&mut self) -> Result<Vec<WorkerReply>> {
        self.workers.iter_mut().map(WorkerProcess::reply).collect()
    }

    /// Publishes a version. Returns when the first shard made its call.
    pub(crate) fn publish(&mut self, version: u64) -> Result<u64> {
        self.order(&Order::Prepare { version })?;
        self.replies()?;
        self.order(&Order::Publish { version })?;
        let at = self.replies()?.into_iter().map(|reply| match reply {
            WorkerReply::Published { at_ns } => Ok(at_ns),
            other => bail!("publish was answered with {other:?}"),
        });
        at.collect::<Result<Vec<_>>>()?.into_iter().min().context("a group has shards")
    }

    /// The answers to an update as one: all bytes, from the first call to the last return.
    pub(crate) fn updated(&mut self) -> Result<WorkerUpdate> {
        let updates = self.replies()?.into_iter().map(|reply| match reply {
            WorkerReply::Updated(updated) => Ok(updated),
            other => bail!("update was answered: {other:?}"),
        });
        let updates = updates.collect::<Result<Vec<_>>>()?;
        updates.into_iter().reduce(WorkerUpdate::and).context("a group has shards")
    }

    /// Whether every byte of every shard is the version's.
    pub(crate) fn holds(&mut self, version: u64) -> Result<bool> {
        self.order(&Order::Check { version })?;
        let replies = self.replies()?;
        Ok(replies.iter().all(|reply| matches!(reply, WorkerReply::Checked { holds: true })))
    }

    /// CPU seconds of all shards.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        self.workers.iter().map(|worker| cpu_seconds(worker.process.id())).sum()
    }

    /// Kills all shards at once (SIGKILL).
    pub(crate) fn kill(&mut self) {
        for worker in &mut self.workers {
            let _already_gone = worker.process.kill();
        }
        for worker in &mut self.workers {
            let _already_gone = worker.process.wait();
        }
    }
}
