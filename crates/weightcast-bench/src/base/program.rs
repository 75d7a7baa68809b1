//! Servers and workers as processes of their own: this program, started again.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use super::measure::{cpu_seconds, resident_bytes};

/// Runs this program with these arguments; in a network namespace, if one is named.
pub(crate) fn command(namespace: Option<&str>, arguments: &[&str]) -> Result<Command> {
    let this = std::env::current_exe().context("find this program")?;
    let mut command = match namespace {
        // `ip` becomes the program: the process id is the program's.
        Some(namespace) => {
            let mut within = Command::new("ip");
            within.args(["netns", "exec", namespace]).arg(this);
            within
        }
        None => Command::new(this),
    };
    command.args(arguments);
    // Settings of a job around this run must not change where peers find the process.
    for name in ["SERVER", "TOKEN_FILE", "DATA_BIND", "DATA_ADVERTISE", "ADDRESS"] {
        command.env_remove(format!("WEIGHTCAST_{name}"));
    }
    if namespace.is_some() && std::env::var_os("WEIGHTCAST_LOG").is_none() {
        // No warnings of ports without a token: an emulated network can't be reached from outside.
        command.env("WEIGHTCAST_LOG", "error");
    }
    Ok(command)
}

/// A reference server in a process of its own; killed when dropped.
pub(crate) struct ServerProcess {
    process: Child,
    address: String,
}

impl ServerProcess {
    /// Starts `weightcast serve` with these arguments and waits until it listens.
    pub(crate) fn start(namespace: Option<&str>, arguments: &[&str]) -> Result<Self> {
        let mut process = command(namespace, &["weightcast", "serve", "--idle-exit", "60"])?
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start a reference server")?;
        let mut line = String::new();
        let output = process.stdout.take().context("a piped standard output")?;
        BufReader::new(output).read_line(&mut line).context("hear the reference server")?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let server = Self { process, address };
        if server.address.is_empty() {
            bail!("the reference server ended at once; its messages are above");
        }
        Ok(server)
    }

    /// The address that clients connect to.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// CPU seconds that the server has used.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        cpu_seconds(self.id())
    }

    /// Resident memory of the server, in bytes.
    pub(crate) fn memory(&self) -> Result<u64> {
        resident_bytes(self.id())
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_gone = self.process.wait();
    }
}
