//! Honest processes: reference servers, trainers, rollouts. Killed when dropped.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::attacker::forge::random;

/// An honest process answers every command sooner, or the attack has succeeded.
pub(super) const PATIENCE: Duration = Duration::from_secs(90);

/// Bytes that an honest process never offered.
pub(crate) const SECRET_BYTES: usize = 64 << 10;

/// The tensor of every honest model.
pub(crate) const TENSOR: &str = "weights";

/// A directory for one attack's processes: token, logs. Removed when dropped.
pub(crate) struct Workspace {
    pub(crate) path: PathBuf,
    pub(crate) token: String,
}

impl Workspace {
    pub(crate) fn new() -> Result<Self> {
        let name = format!("weightcast-attacks-{:016x}", u64::from_le_bytes(random()));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path)?;
        // Another user's attack has to get to the program, not fail at the directory.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        let runtime = path.join("run");
        fs::create_dir(&runtime)?;
        fs::set_permissions(&runtime, fs::Permissions::from_mode(0o700))?;
        let token = keep(&path.join("token"))?;
        Ok(Self { path, token })
    }

    /// Draws a secret that only servers have; returns its file.
    pub(crate) fn secret_file(&self) -> Result<String> {
        let path = self.path.join("ticket-secret");
        keep(&path)?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The token that processes of this user find by themselves.
    pub(crate) fn own_token(&self) -> Option<String> {
        fs::read_to_string(self.path.join("run/weightcast/.token")).ok()
    }

    pub(crate) fn token_file(&self) -> String {
        self.path.join("token").to_string_lossy().into_owned()
    }

    /// What all processes have logged.
    pub(crate) fn logs(&self) -> Vec<(String, String)> {
        let entries = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let logs =
            entries.map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "log"));
        let read = |path: PathBuf| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            (name, String::from_utf8_lossy(&fs::read(&path).unwrap_or_default()).into_owned())
        };
        logs.map(read).collect()
    }

    /// What the command line makes of these arguments, with the job's token.
    pub(crate) fn run(&self, arguments: &[&str]) -> Result<Output> {
        let mut command = command(self, "command", &program("weightcast")?, None)?;
        command.env("WEIGHTCAST_TOKEN_FILE", self.token_file());
        Ok(command.args(arguments).stderr(Stdio::piped()).output()?)
    }

    fn log(&self, name: &str) -> Result<File> {
        let path = self.path.join(format!("{name}.log"));
        Ok(File::options().create(true).append(true).open(path)?)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Draws a secret, and writes it where only this user can read it.
fn keep(path: &Path) -> Result<String> {
    let secret: String = random::<32>().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(secret.as_bytes())?;
    Ok(secret)
}

/// A program that was built beside this one.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let me = std::env::current_exe()?;
    let path = me.parent().context("this program lies in a directory")?.join(name);
    ensure!(path.exists(), "{} is not built: use `make attacks`", path.display());
    Ok(path)
}

/// A command that nothing around configures, with a log of its own.
pub(super) fn command(
    workspace: &Workspace,
    name: &str,
    program: &Path,
    descriptors: Option<u32>,
) -> Result<Command> {
    let mut command = match descriptors {
        // `prlimit` becomes the program: the process id is the program's.
        Some(limit) => {
            let mut command = Command::new("prlimit");
            command.arg(format!("--nofile={limit}:{limit}")).arg(program);
            command
        }
        None => Command::new(program),
    };
    for (variable, _) in std::env::vars_os() {
        if variable.to_string_lossy().starts_with("WEIGHTCAST_") {
            command.env_remove(variable);
        }
    }
    command.env("XDG_RUNTIME_DIR", workspace.path.join("run"));
    // A backtrace would cost time and memory that the attack does not.
    command.env("RUST_BACKTRACE", "0");
    command.stderr(workspace.log(name)?).stdout(Stdio::piped());
    Ok(command)
}

/// A reference server.
pub(crate) struct VictimServer {
    pub(crate) child: Child,
    pub(crate) address: String,
}

impl VictimServer {
    /// Starts `weightcast serve` and waits until the server listens. The server ends soon after this program.
    pub(crate) fn start(workspace: &Workspace, arguments: &[&str]) -> Result<Self> {
        let mut command = command(workspace, "server", &program("weightcast")?, None)?;
        let mut child = command
            .args(["serve", "--idle-exit", "120"])
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()?;
        let output = child.stdout.take().context("a piped output")?;
        let lines = lines(output);
        let line = lines.recv_timeout(PATIENCE).unwrap_or_default();
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let server = Self { child, address };
        if server.address.is_empty() {
            let said: String = workspace.logs().into_iter().map(|(_, log)| log).collect();
            bail!("the server ended at once: {said}");
        }
        // The thread that reads the server's lines ends here, with the receiver of its channel.
        Ok(server)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The `ADDRESS` at which a successor is to be started.
    pub(crate) fn port(&self) -> String {
        self.address.trim_start_matches("http://").to_owned()
    }

    pub(crate) fn kill(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}

impl Drop for VictimServer {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(super) fn lines(output: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            let _ = sender.send(line);
        }
    });
    receiver
}

/// The settings that an honest worker starts with: see `examples/honest.rs`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Settings {
    pub(crate) server: String,
    pub(crate) token_file: Option<String>,
    pub(crate) model: String,
    pub(crate) replica: String,
    pub(crate) role: &'static str,
    pub(crate) bytes: usize,
    pub(crate) secret: u64,
    pub(crate) retain: u32,
    pub(crate) new_epoch: bool,
    pub(crate) tcp: bool,
    pub(crate) data_bind: Option<String>,
    pub(crate) plan_cache: Option<String>,
    /// The networks of data ports, if the job lists any.
    #[serde(skip)]
    pub(crate) networks: Option<String>,
    /// The most descriptors that the worker may have.
    #[serde(skip)]
    pub(crate) descriptors: Option<u32>,
}

/// How a command went.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct WorkerAnswer {
    pub(crate) ok: bool,
    pub(crate) ms: f64,
    pub(crate) error: Option<String>,
    pub(crate) changed: bool,
    pub(crate) version: Option<(u64, u64)>,
    pub(crate) right: bool,
    pub(crate) found: u64,
    pub(crate) address: u64,
    pub(crate) source: Option<String>,
    pub(crate) way: Option<String>,
}

impl WorkerAnswer {
    pub(crate) fn said(&self) -> &str {
        self.error.as_deref().unwrap_or("nothing")
    }
}

/// An honest worker.
pub(crate) struct Honest {
    pub(crate) settings: Settings,
    pub(crate) child: Child,
    input: ChildStdin,
    output: Receiver<String>,
    /// The address of the worker's secret.
    pub(crate) secret_at: u64,
    /// How long the worker took to open and register.
    pub(crate) opened_ms: f64,
}

impl Honest {
    /// # Errors
    /// The worker could not open or register; the error has its own words.
    pub(crate) fn start(workspace: &Workspace, settings: Settings) -> Result<Self> {
        let name = format!("{}-{}", settings.model, settings.replica).replace('/', "-");
        let program = program("examples/honest")?;
        let mut command = command(workspace, &name, &program, settings.descriptors)?;
        if let Some(networks) = &settings.networks {
            command.env("WEIGHTCAST_DATA_NETWORKS", networks);
        }
        command.arg(serde_json::to_string(&settings)?).stdin(Stdio::piped());
        let mut child = command.spawn()?;
        let input = child.stdin.take().context("a piped input")?;
        let output = lines(child.stdout.take().context("a piped output")?);
        let mut honest = Self { settings, child, input, output, secret_at: 0, opened_ms: 0.0 };
        let reply = honest.hear();
        ensure!(reply.ok, "{}", reply.said());
        (honest.secret_at, honest.opened_ms) = (reply.address, reply.ms);
        Ok(honest)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.settings.model, self.settings.replica)
    }

    pub(crate) fn lives(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub(crate) fn say(&mut self, command: &str) {
        // A worker that is gone does not reply, which `hear` notices.
        let _ = writeln!(self.input, "{command}");
    }

    pub(crate) fn hear(&mut self) -> WorkerAnswer {
        let failed = |error: String| WorkerAnswer { error: Some(error), ..WorkerAnswer::default() };
        match self.output.recv_timeout(PATIENCE) {
            Ok(line) => {
                serde_json::from_str(&line).unwrap_or_else(|e| failed(format!("{e}: {line}")))
            }
            Err(mpsc::RecvTimeoutError::Timeout) => failed(format!("no reply in {PATIENCE:?}")),
            Err(mpsc::RecvTimeoutError::Disconnected) => failed("the process has ended".into()),
        }
    }

    pub(crate) fn ask(&mut self, command: &str) -> WorkerAnswer {
        self.say(command);
        self.hear()
    }

    /// As [`Honest::ask`], for a command that must succeed.
    pub(crate) fn must(&mut self, command: &str) -> Result<WorkerAnswer> {
        let reply = self.ask(command);
        ensure!(reply.ok, "{} {command}: {}", self.name(), reply.said());
        Ok(reply)
    }
}

impl Drop for Honest {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _already_gone = self.child.wait();
    }
}
