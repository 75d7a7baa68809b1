//! An honest owner of memory that opens grants: `examples/granter.rs`.

use std::io::Write;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::Receiver;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::victims::{PATIENCE, Workspace, command, lines, program};

/// Bytes of its memory that its grants are over.
pub(crate) const GRANTED_BYTES: u64 = 8 << 10;

/// A process with a data port and some memory. Killed when dropped.
pub(crate) struct Granter {
    child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    pub(crate) data_address: String,
}

/// What the owner sends to its writer.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct OpenGrant {
    pub(crate) id: u64,
    pub(crate) secret: Vec<u8>,
}

/// How many bytes of the owner's memory have changed.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) granted: u64,
    pub(crate) beside: u64,
}

#[derive(Deserialize)]
struct Listening {
    data_address: String,
}

/// A command that was obeyed, or why not.
#[derive(Deserialize)]
struct Done {
    ok: bool,
    error: Option<String>,
}

impl Granter {
    pub(crate) fn start(workspace: &Workspace) -> Result<Self> {
        let mut command = command(workspace, "granter", &program("examples/granter")?, None)?;
        let mut child = command.arg(workspace.token_file()).stdin(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("a piped input")?;
        let output = lines(child.stdout.take().context("a piped output")?);
        let mut granter = Self { child, input, output, data_address: String::new() };
        granter.data_address = granter.hear::<Listening>()?.data_address;
        Ok(granter)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Opens a grant of a generation for so long, and for connections from one address if that is given.
    pub(crate) fn grant(
        &mut self,
        generation: u64,
        ms: u64,
        writer: Option<&str>,
    ) -> Result<OpenGrant> {
        self.ask(&format!("grant {generation} {ms} {}", writer.unwrap_or_default()))
    }

    pub(crate) fn close(&mut self, grant: &OpenGrant) -> Result<()> {
        let done: Done = self.ask(&format!("close {}", grant.id))?;
        ensure!(done.ok, "the grant was not open");
        Ok(())
    }

    /// Serves its memory, as a published version.
    pub(crate) fn serve(&mut self) -> Result<()> {
        let done: Done = self.ask("serve")?;
        ensure!(done.ok, "{}", done.error.unwrap_or_default());
        Ok(())
    }

    /// What has changed since this was asked last.
    pub(crate) fn changed(&mut self) -> Result<Changed> {
        self.ask("changed")
    }

    fn ask<T: DeserializeOwned>(&mut self, command: &str) -> Result<T> {
        writeln!(self.input, "{command}")?;
        self.hear()
    }

    fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let line = self.output.recv_timeout(PATIENCE).context("no answer of the granter")?;
        serde_json::from_str(&line).with_context(|| line.clone())
    }
}

impl Drop for Granter {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}
