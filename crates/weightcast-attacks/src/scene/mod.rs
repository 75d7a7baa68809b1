//! The scene of an attack: a server and honest workers ([`victims`]), an owner that grants ([`granter`]), their
//! [`traffic`], what the attack costs them ([`usage`]), and the verdict on the attack.

pub(crate) mod granter;
pub(crate) mod traffic;
pub(crate) mod usage;
pub(crate) mod victims;

use std::time::{Duration, Instant};

use anyhow::Result;
use serde::Serialize;

use crate::attacker::control::{ControlClient, RogueSession};
use traffic::{Felt, Latency, Traffic};
use usage::{Course, Meter};
use victims::{Honest, Settings, VictimServer, Workspace};

/// Bytes of the honest model.
pub(crate) const MODEL_BYTES: usize = 4 << 20;
/// Megabytes by which a process may grow during an attack, unless the attack says otherwise.
const GROWTH_MB: f64 = 256.0;
/// The same for descriptors.
const DESCRIPTORS: usize = 600;
/// Last lines of each log that are shown if an attack has succeeded.
const LOG_LINES: usize = 3;
/// Versions that have to be published and read before an attack, and after it.
const ROUNDS: usize = 3;

/// How an attack went.
#[derive(Debug, Serialize)]
pub(crate) struct AttackReport {
    pub(crate) name: &'static str,
    pub(crate) item: &'static str,
    /// Why the attack could not be tried here.
    pub(crate) skipped: Option<String>,
    /// In which ways the attack succeeded; empty if it did not.
    pub(crate) succeeded: Vec<String>,
    /// What the attacker got, or how it was stopped.
    pub(crate) notes: Vec<String>,
    pub(crate) publish: Latency,
    pub(crate) update: Latency,
    pub(crate) processes: Vec<Course>,
    pub(crate) seconds: f64,
}

/// The scene of one attack.
pub(crate) struct Scene {
    pub(crate) workspace: Workspace,
    pub(crate) server: VictimServer,
    meter: Meter,
    traffic: Option<Traffic>,
    arguments: Vec<String>,
    pub(crate) succeeded: Vec<String>,
    pub(crate) notes: Vec<String>,
    pub(crate) skipped: Option<String>,
    /// Megabytes that a process may grow by.
    pub(crate) growth_mb: f64,
    /// Descriptors by which a process may grow.
    pub(crate) descriptors: usize,
    bystanders: Vec<Honest>,
    rogues: Vec<RogueSession>,
    next_secret: u64,
}

impl Scene {
    /// A server with the job's token, that honest workers of [`Scene::begin`] use.
    pub(crate) fn new(arguments: &[&str]) -> Result<Self> {
        Self::within(Workspace::new()?, arguments)
    }

    fn within(workspace: Workspace, arguments: &[&str]) -> Result<Self> {
        let token_file = workspace.token_file();
        let mut all = vec!["--token-file", &token_file, "--address", "127.0.0.1:0"];
        all.extend(arguments);
        let server = VictimServer::start(&workspace, &all)?;
        let meter = Meter::start();
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let mut secret = [0; 4];
        getrandom::fill(&mut secret).expect("the kernel's random numbers");
        Ok(Self {
            workspace,
            server,
            meter,
            traffic: None,
            arguments,
            succeeded: Vec::new(),
            notes: Vec::new(),
            skipped: None,
            growth_mb: GROWTH_MB,
            descriptors: DESCRIPTORS,
            bystanders: Vec::new(),
            rogues: Vec::new(),
            next_secret: u64::from(u32::from_le_bytes(secret)),
        })
    }

    /// The same, of servers that have a secret of their own, which no client has.
    pub(crate) fn guarded(arguments: &[&str]) -> Result<Self> {
        let workspace = Workspace::new()?;
        let secret = workspace.secret_file()?;
        let guarded = [&["--ticket-secret-file", &secret], arguments].concat();
        Self::within(workspace, &guarded)
    }

    /// The attacker's connection: with the token.
    pub(crate) fn control(&self) -> Result<ControlClient> {
        ControlClient::new(&self.server.address, Some(&self.workspace.token))
    }

    /// The settings of a worker of this scene.
    pub(crate) fn worker(&mut self, model: &str, replica: &str, role: &'static str) -> Settings {
        self.next_secret += 1;
        Settings {
            server: self.server.address.clone(),
            token_file: Some(self.workspace.token_file()),
            model: model.to_owned(),
            replica: replica.to_owned(),
            role,
            bytes: MODEL_BYTES,
            secret: self.next_secret,
            ..Settings::default()
        }
    }

    pub(crate) fn trainer(&mut self, model: &str) -> Result<Honest> {
        let settings = self.worker(model, "trainer", "trainer");
        self.start(settings)
    }

    pub(crate) fn rollout(&mut self, model: &str, replica: &str) -> Result<Honest> {
        let settings = self.worker(model, replica, "rollout");
        self.start(settings)
    }

    pub(crate) fn start(&self, settings: Settings) -> Result<Honest> {
        Honest::start(&self.workspace, settings)
    }

    /// Watches what an honest worker uses from now on.
    pub(crate) fn watch(&self, honest: &Honest) {
        self.watch_process(&honest.name(), honest.id());
    }

    /// The same of any process.
    pub(crate) fn watch_process(&self, name: &str, id: u32) {
        self.meter.watch(name, id);
    }

    /// Begins honest traffic, until the end of the attack. From here on the meter counts what server and workers use.
    pub(crate) fn begin(&mut self) -> Result<()> {
        let trainer = self.trainer("policy")?;
        let rollout = self.rollout("policy", "rollout")?;
        let ids = [(trainer.name(), trainer.id()), (rollout.name(), rollout.id())];
        let traffic = Traffic::start(trainer, rollout);
        traffic.wait(ROUNDS);
        self.traffic = Some(traffic);
        self.meter.watch("server", self.server.id());
        ids.iter().for_each(|(name, id)| self.meter.watch(name, *id));
        Ok(())
    }

    /// Kills the server and starts another at the same address.
    pub(crate) fn restart(&mut self) -> Result<()> {
        let port = self.server.port();
        self.server.kill();
        let token_file = self.workspace.token_file();
        let mut all = vec!["--token-file", &token_file, "--address", &port];
        all.extend(self.arguments.iter().map(String::as_str));
        self.server = VictimServer::start(&self.workspace, &all)?;
        self.meter.watch("server, again", self.server.id());
        Ok(())
    }

    /// How many versions were published and read.
    pub(crate) fn rounds(&self) -> usize {
        self.traffic.as_ref().map_or(0, Traffic::rounds)
    }

    /// Whether honest workers have given up: something is wrong.
    pub(crate) fn is_over(&self) -> bool {
        self.traffic.as_ref().is_some_and(Traffic::is_over)
    }

    /// Notes a way in which the attack has succeeded, unless the condition holds.
    pub(crate) fn expect(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.succeeded.push(otherwise());
        }
    }

    /// A note for people. A note that is there already is not repeated.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// A worker that has to be alive at the end.
    pub(crate) fn keep(&mut self, honest: Honest) {
        self.bystanders.push(honest);
    }

    /// Keeps a session of the attacker until the attack is over.
    pub(crate) fn stays(&mut self, rogue: RogueSession) {
        self.rogues.push(rogue);
    }

    /// Ends the traffic, and says how the attack went.
    pub(crate) fn finish(
        mut self,
        name: &'static str,
        item: &'static str,
        started: Instant,
    ) -> AttackReport {
        let felt = self.end_traffic();
        let server = self.server.lives();
        self.expect(server, || "the server is dead".to_owned());
        let mut bystanders = std::mem::take(&mut self.bystanders);
        for honest in &mut bystanders {
            let lives = honest.lives();
            self.expect(lives, || format!("{} is dead", honest.name()));
        }
        let (growth, descriptors) = (self.growth_mb, self.descriptors);
        let meter = std::mem::replace(&mut self.meter, Meter::start());
        let processes = meter.finish();
        for course in &processes {
            let (grown, more) = (course.grown_mb(), course.more_descriptors());
            self.expect(grown <= growth, || {
                format!("{} grew by {grown:.0} MB, more than {growth:.0}", course.process)
            });
            self.expect(more <= descriptors, || {
                format!("{} took {more} descriptors, more than {descriptors}", course.process)
            });
        }
        self.look_through_logs();
        AttackReport {
            name,
            item,
            skipped: self.skipped.take(),
            succeeded: std::mem::take(&mut self.succeeded),
            notes: std::mem::take(&mut self.notes),
            publish: Latency::of(felt.publish),
            update: Latency::of(felt.update),
            processes,
            seconds: started.elapsed().as_secs_f64(),
        }
    }

    fn end_traffic(&mut self) -> Felt {
        let Some(traffic) = self.traffic.take() else { return Felt::default() };
        traffic.wait(ROUNDS);
        let (trainer, rollout, mut felt) = traffic.finish();
        self.bystanders.extend([trainer, rollout]);
        self.succeeded.append(&mut felt.wrong);
        felt
    }

    /// No log has a panic, and no log has the token.
    fn look_through_logs(&mut self) {
        for (name, log) in self.workspace.logs() {
            let lines: Vec<&str> = log.lines().collect();
            let at = lines.iter().position(|line| line.contains("panicked at"));
            self.expect(at.is_none(), || {
                let said = lines.iter().skip(at.unwrap_or_default()).take(2);
                format!("{name}: {}", said.copied().collect::<Vec<_>>().join(" "))
            });
            let told = log.contains(&self.workspace.token);
            self.expect(!told, || format!("the log of {name} has the token"));
        }
        if !self.succeeded.is_empty() {
            self.quote_logs();
        }
    }

    /// Quotes the last lines of the logs, because the logs themselves are removed.
    fn quote_logs(&mut self) {
        for (name, log) in self.workspace.logs() {
            let log = log.replace(&self.workspace.token, "(the token)");
            let lines: Vec<&str> = log.lines().collect();
            for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
                self.notes.push(format!("log of {name}: {line}"));
            }
        }
    }
}

/// CPU seconds that a process uses within a window of time.
pub(crate) fn busy(pid: u32, window: Duration) -> f64 {
    let before = usage::cpu_seconds(pid);
    std::thread::sleep(window);
    usage::cpu_seconds(pid) - before
}
