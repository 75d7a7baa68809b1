//! Commands that are other programs: this one starts them.

use std::ffi::{OsStr, OsString};
use std::io::{Error, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use anyhow::{anyhow, bail};

/// The program of the crate weightcast-bench.
const BENCH: &str = "weightcast-bench";

/// Module of the demo.
pub(crate) const DEMO: &str = "weightcast.examples.rl_loop";
/// Module of `pull` and `push`.
pub(crate) const CHECKPOINT: &str = "weightcast.checkpoint";

/// Runs a module of the Python package; the package's own command starts these without coming here.
pub(crate) fn python(module: &[&str], arguments: &[String]) -> anyhow::Result<()> {
    let mut python = Command::new("python3");
    python.arg("-m").args(module).args(arguments);
    match python.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("python3 -m {} ended with {status}", module.join(" ")),
        Err(error) => bail!("cannot start python3: {error}; pip install weightcast"),
    }
}

/// Replaces this process by the benches' program, whose exit status is then this process's. Returns
/// only where there is no such program, or none of this build.
pub(crate) fn bench(arguments: &[String]) -> anyhow::Result<()> {
    let program = bench_program();
    check_build(&program)?;
    Err(not_started(&Command::new(program).args(arguments).exec()))
}

/// Asks the program which build it is. One of other sources would measure another weightcast than this
/// one, and nobody would notice.
fn check_build(program: &OsStr) -> anyhow::Result<()> {
    let output = Command::new(program).arg("--version").output();
    let output = output.map_err(|error| not_started(&error))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if said.trim_end() == format!("{BENCH} {}", crate::BUILD) {
        return Ok(());
    }
    bail!(
        "{} is of another build: it says {:?}, this program is {}; build both in one checkout of \
         weightcast, with `cargo build --release -p weightcast-cli -p {BENCH}`",
        Path::new(program).display(),
        said.trim_end(),
        crate::BUILD
    )
}

fn not_started(error: &Error) -> anyhow::Error {
    if error.kind() == ErrorKind::NotFound {
        return anyhow!(
            "there is no {BENCH} beside this program or on PATH: build it in a checkout of weightcast \
             with `cargo build --release -p {BENCH}`, or run `make bench` there"
        );
    }
    anyhow!("cannot start {BENCH}: {error}")
}

/// The program that was built with this one, or else its name, which is looked for on PATH.
fn bench_program() -> OsString {
    let beside = std::env::current_exe().map(|this| this.with_file_name(BENCH));
    match beside {
        Ok(beside) if beside.is_file() => beside.into(),
        _ => BENCH.into(),
    }
}
