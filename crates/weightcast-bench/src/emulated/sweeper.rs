//! Removes emulated hosts, whatever happens to the process that made them.
//!
//! The sweeper is a process in a process group of its own. It waits for the end of a pipe, which
//! comes at a normal exit, a panic, Ctrl-C and SIGKILL alike.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};

use crate::base::program::command;

/// A sweeper that waits for the end of its maker.
pub(crate) struct Sweeper {
    process: Child,
}

impl Sweeper {
    /// Starts a sweeper that will remove all namespaces `PREFIX-*` and kill the processes in them.
    pub(crate) fn start(prefix: &str) -> Result<Self> {
        let process = command(None, &["sweeper", prefix])?
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()
            .context("start the sweeper")?;
        Ok(Self { process })
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _already_gone = self.process.wait();
    }
}

/// The sweeper's own program.
pub(crate) fn run(prefix: &str) -> Result<()> {
    let _ended = std::io::stdin().read_to_end(&mut Vec::new());
    sweep(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-')))
}

/// Removes namespaces of earlier runs, unless the process that made them still lives.
pub(crate) fn clean_up() -> Result<()> {
    sweep(|name| {
        let maker = name.strip_prefix("wc").and_then(|rest| rest.split_once('-'));
        maker.is_some_and(|(pid, _)| {
            pid.parse::<u32>().is_ok() && !std::path::Path::new("/proc").join(pid).exists()
        })
    })
}

fn sweep(ours: impl Fn(&str) -> bool) -> Result<()> {
    for name in namespaces()?.iter().filter(|name| ours(name)) {
        for pid in words(&["netns", "pids", name])? {
            let pid = pid.parse().ok().and_then(rustix::process::Pid::from_raw);
            let kill = rustix::process::Signal::KILL;
            let _already_gone = pid.map(|pid| rustix::process::kill_process(pid, kill));
        }
        words(&["netns", "del", name])?;
    }
    Ok(())
}

/// All namespaces that have a name.
fn namespaces() -> Result<Vec<String>> {
    let output = Command::new("ip").args(["netns", "list"]).output().context("run ip")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.lines().filter_map(|l| l.split_whitespace().next()).map(str::to_owned).collect())
}

fn words(arguments: &[&str]) -> Result<Vec<String>> {
    let output = Command::new("ip").args(arguments).output().context("run ip")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(text.split_whitespace().map(str::to_owned).collect())
}
