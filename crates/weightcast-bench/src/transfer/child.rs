//! The measuring process's end of its source processes.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use anyhow::{Context, Result, bail};
use serde::Serialize;

use super::orders::{BareExport, Publish, Published, SourceReply, SourceStart};
use crate::base::measure::cpu_seconds;
use crate::base::program::command;
use crate::weights::cases::TransferCase;

/// All shards of the publisher, each in a process of its own; killed when dropped.
pub(crate) struct Sources {
    shards: Vec<SourceProcess>,
    /// The bytes that limits read; the first process serves them.
    pub(crate) bare: Option<BareExport>,
    version: u64,
}

struct SourceProcess {
    process: Child,
    orders: ChildStdin,
    replies: BufReader<ChildStdout>,
}

impl Sources {
    /// Starts the source processes and registers their shards.
    pub(crate) fn start(
        server: &str,
        model: &str,
        case: &TransferCase,
        bare_bytes: Option<u64>,
        shared: bool,
    ) -> Result<Self> {
        let shards =
            (0..case.sources()?.len()).map(|_| SourceProcess::spawn()).collect::<Result<_>>()?;
        let mut sources = Self { shards, bare: None, version: 0 };
        for (shard, source) in sources.shards.iter_mut().enumerate() {
            source.order(&SourceStart {
                server: server.to_owned(),
                model: model.to_owned(),
                case: case.clone(),
                shard: u32::try_from(shard)?,
                shared,
                bare_bytes: bare_bytes.filter(|_| shard == 0),
            })?;
        }
        for source in &mut sources.shards {
            match source.reply()? {
                SourceReply::Ready { bare } => sources.bare = sources.bare.or(bare),
                other => bail!("a source process answered {other:?}"),
            }
        }
        Ok(sources)
    }

    /// Publishes the next version and waits until it is sealed. Returns the version, and the
    /// longest time of any shard for each step.
    pub(crate) fn publish(&mut self, fill: bool) -> Result<(u64, Published)> {
        self.version += 1;
        let order = Publish { version: self.version, fill };
        self.shards.iter_mut().try_for_each(|source| source.order(&order))?;
        let mut slowest = Published { publish_s: 0.0, seal_s: 0.0 };
        for source in &mut self.shards {
            match source.reply()? {
                SourceReply::Published(took) => slowest = slowest.longer(took),
                other => bail!("a source process answered {other:?}"),
            }
        }
        Ok((self.version, slowest))
    }

    /// CPU seconds used by this process and the sources.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let children = self.shards.iter().map(|source| source.process.id());
        children.chain([std::process::id()]).map(cpu_seconds).sum()
    }
}

impl SourceProcess {
    fn spawn() -> Result<Self> {
        let mut process = command(None, &["source"])?
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a source process")?;
        let orders = process.stdin.take().context("a piped standard input")?;
        let replies = BufReader::new(process.stdout.take().context("a piped standard output")?);
        Ok(Self { process, orders, replies })
    }

    fn order(&mut self, order: &impl Serialize) -> Result<()> {
        writeln!(self.orders, "{}", serde_json::to_string(order)?).context("order a source process")
    }

    fn reply(&mut self) -> Result<SourceReply> {
        let mut line = String::new();
        if self.replies.read_line(&mut line).context("hear a source process")? == 0 {
            bail!("a source process ended without an answer; its messages are above");
        }
        let reply = serde_json::from_str(&line)
            .with_context(|| format!("a source process answered {line:?}"))?;
        match reply {
            SourceReply::Failed { error } => bail!("a source process failed: {error}"),
            reply => Ok(reply),
        }
    }
}

impl Drop for SourceProcess {
    /// Kills the process at once: nothing that it holds is still needed.
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_gone = self.process.wait();
    }
}
