//! Commands that are other programs: this one starts them.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::bail;

/// The program of the crate weightcast-bench.
const BENCH: &str = "weightcast-bench";

/// The demo is a Python program; the package's own command starts it without coming here.
pub(crate) fn demo(arguments: &[String]) -> anyhow::Result<()> {
    let mut python = Command::new("python3");
    python.args(["-m", "weightcast.examples.rl_loop"]).args(arguments);
    match python.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => bail!("the demo ended with {status}"),
        Err(error) => bail!("cannot start python3: {error}; pip install weightcast"),
    }
}

/// Replaces this process by the benches' program, whose exit status is then this process's. Returns
/// only where there is no such program.
pub(crate) fn bench(arguments: &[String]) -> anyhow::Result<()> {
    let error = Command::new(bench_program()).args(arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        bail!(
            "there is no {BENCH} beside this program or on PATH: build it in a checkout of weightcast \
             with `cargo build --release -p {BENCH}`, or run `make bench` there"
        );
    }
    bail!("cannot start {BENCH}: {error}")
}

/// The program that was built with this one, or else its name, which is looked for on PATH.
fn bench_program() -> OsString {
    let beside = std::env::current_exe().map(|this| this.with_file_name(BENCH));
    match beside {
        Ok(beside) if beside.is_file() => beside.into(),
        _ => BENCH.into(),
    }
}
