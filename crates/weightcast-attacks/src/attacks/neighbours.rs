//! Other users of the host, files that other users can write, addresses that readers must not connect to.

use std::fs;
use std::net::{TcpListener, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use clap::Args;

use super::memory::data_address;
use crate::attacker::control::{ControlClient, open};
use crate::attacker::data::Data;
use crate::attacker::forge;
use crate::attacker::port::{LyingPort, refusal};
use crate::attacker::wire::Role;
use crate::scene::victims::{Honest, TENSOR, VictimServer};
use crate::scene::{MODEL_BYTES, Scene};

/// The id of the user `nobody`, who owns nothing.
const NOBODY: u32 = 65_534;

/// The arguments of an attempt by another user.
#[derive(Args)]
pub(crate) struct StrangerArguments {
    /// A server
    #[arg(long)]
    server: String,
    /// A data port
    #[arg(long)]
    data: Option<String>,
}

/// Prints a line for each door that is open.
pub(crate) fn stranger(stranger: &StrangerArguments) -> Result<ExitCode> {
    let control = ControlClient::new(&stranger.server, None)?;
    match control.status() {
        Ok(status) => println!("open: the server shows {} models", status.models.len()),
        Err(error) => println!("closed: {error:#}"),
    }
    match control.open(open("policy", "stranger", Role::Trainer)) {
        Ok(_) => println!("open: the server takes a trainer in"),
        Err(error) => println!("closed: {error:#}"),
    }
    if let Some(data) = &stranger.data {
        match Data::connect(data, None) {
            Ok(_) => println!("open: the data port serves"),
            Err(error) => println!("closed: {error:#}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn another_user(scene: &mut Scene) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        scene.skipped = Some("only root can become another user".to_owned());
        return Ok(());
    }
    scene.begin()?;
    let server = match VictimServer::start(&scene.workspace, &["--address", "127.0.0.1:0"]) {
        Ok(server) => server,
        Err(error) => {
            scene.note(format!("without a token the server does not start: {error:#}"));
            return Ok(());
        }
    };
    let mut settings = scene.worker("policy", "trainer", "trainer");
    (settings.server, settings.token_file) = (server.address.clone(), None);
    let data = match scene.start(settings) {
        Ok(mut trainer) => {
            trainer.must("publish 1")?;
            scene.keep(trainer);
            let own = scene.workspace.own_token();
            let control = ControlClient::new(&server.address, own.as_deref())?;
            data_address(&control, "policy", "trainer").ok()
        }
        Err(error) => {
            scene.note(format!("without a token a trainer does not open: {error:#}"));
            None
        }
    };
    // A place where every user may run the program.
    let program = scene.workspace.path.join("stranger");
    fs::copy(std::env::current_exe()?, &program)?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    let mut command = Command::new(&program);
    command.args(["stranger", "--server", &server.address]);
    if let Some(data) = &data {
        command.args(["--data", data]);
    }
    let output = command.uid(NOBODY).gid(NOBODY).current_dir("/").output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    anyhow::ensure!(
        output.status.success() && !said.is_empty(),
        "the stranger could not try: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    for line in said.lines() {
        scene.note(format!("uid {NOBODY}: {line}"));
        scene.expect(!line.starts_with("open"), || format!("another user: {line}"));
    }
    Ok(())
}

pub(super) fn writable_files(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    let token = scene.workspace.path.join("loose-token");
    fs::write(&token, &scene.workspace.token)?;
    for mode in [0o666, 0o620, 0o602] {
        fs::set_permissions(&token, fs::Permissions::from_mode(mode))?;
        let path = token.to_string_lossy().into_owned();
        let server = VictimServer::start(
            &scene.workspace,
            &["--address", "127.0.0.1:0", "--token-file", &path],
        );
        scene.expect(server.is_err(), || format!("a server takes a token file of mode {mode:o}"));
        let mut settings = scene.worker("policy", &format!("loose-{mode:o}"), "rollout");
        settings.token_file = Some(path);
        let worker = scene.start(settings);
        scene.expect(worker.is_err(), || format!("a worker takes a token file of mode {mode:o}"));
        if let Err(error) = worker {
            scene.note(format!("mode {mode:o}: {error:#}"));
        }
    }
    let plans = scene.workspace.path.join("plans");
    fs::create_dir(&plans)?;
    fs::set_permissions(&plans, fs::Permissions::from_mode(0o777))?;
    let mut settings = scene.worker("policy", "loose-plans", "rollout");
    settings.plan_cache = Some(plans.to_string_lossy().into_owned());
    let used = match scene.start(settings) {
        Ok(mut worker) => {
            worker.ask("update 60000");
            let kept = fs::read_dir(&plans)?.count();
            scene.note(format!("{kept} plans were kept in a directory of mode 777"));
            kept > 0
        }
        Err(error) => {
            scene.note(format!("plans: {error:#}"));
            false
        }
    };
    scene.expect(!used, || "plans are kept where everybody can write".to_owned());
    Ok(())
}

/// An address of this host other than loopback, if the host has one. No packet is sent to find out.
pub(super) fn own_address() -> Option<String> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback()).then(|| ip.to_string())
}

/// A service that nobody should be sent to: counts the connections.
pub(super) struct Canary {
    address: String,
    pub(super) port: u16,
    pub(super) knocks: Arc<AtomicUsize>,
}

impl Canary {
    pub(super) fn sit(at: &str) -> Result<Self> {
        let listener = TcpListener::bind((at, 0))?;
        let (address, port) = (listener.local_addr()?.to_string(), listener.local_addr()?.port());
        let knocks = Arc::<AtomicUsize>::default();
        std::thread::spawn({
            let knocks = Arc::clone(&knocks);
            move || {
                for _visitor in listener.incoming().flatten() {
                    knocks.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        Ok(Self { address, port, knocks })
    }
}

pub(super) fn any_address(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    // One reader's job lists the networks of its data ports. The other's does not, but some addresses are never tried.
    let mut settings = scene.worker("bait", "reader", "rollout");
    settings.networks = Some("127.0.0.0/8".to_owned());
    let listed = scene.start(settings)?;
    let unlisted = scene.rollout("bait", "reader-2")?;
    let local = Canary::sit("127.0.0.1")?;
    let anywhere = format!("0.0.0.0:{}", local.port);
    let mapped = format!("[::]:{}", local.port);
    let link_local = "169.254.7.7:9".to_owned();
    let mut tried = vec![(listed, Vec::new()), (unlisted, vec![anywhere, mapped, link_local])];
    let elsewhere = own_address().map(|own| Canary::sit(&own)).transpose()?;
    match &elsewhere {
        Some(canary) => tried[0].1.push(canary.address.clone()),
        None => scene.note("this host has no address beside loopback: one test less"),
    }
    let mut number = 0;
    for (reader, addresses) in &mut tried {
        for address in addresses {
            number += 1;
            let said = lure(scene, number, address, reader)?;
            scene.note(format!("{address}: {said}"));
            scene.expect(said.contains("names the data port"), || {
                format!("a reader may have connected to {address}: {said}")
            });
        }
    }
    for canary in [Some(&local), elsewhere.as_ref()].into_iter().flatten() {
        let knocks = canary.knocks.load(Ordering::Relaxed);
        scene.expect(knocks == 0, || format!("readers came to {} {knocks} times", canary.address));
    }
    // At an address where a data port may be, both readers connect.
    let port =
        LyingPort::open("127.0.0.1:0", &scene.workspace.token, Arc::new(|_: &_| refusal(1)))?;
    for (reader, _) in &mut tried {
        number += 1;
        lure(scene, number, &port.address, reader)?;
    }
    anyhow::ensure!(port.knocked() >= tried.len(), "readers do not come to a loopback port either");
    tried.into_iter().for_each(|(reader, _)| scene.keep(reader));
    Ok(())
}

/// Publishes a version whose data port is said to be at this address, and has the reader replicate the version.
/// Returns the reader's error.
fn lure(scene: &Scene, number: u64, address: &str, reader: &mut Honest) -> Result<String> {
    let control = scene.control()?;
    let bytes = MODEL_BYTES as u64;
    let manifest = forge::one_tensor(TENSOR, bytes);
    control.put_manifest(&manifest)?;
    let mut source = open("bait", &format!("source-{number}"), Role::Trainer);
    source.data_address = address.to_owned();
    let mut source = match control.open(source) {
        Ok(source) => source,
        Err(error) => return Ok(format!("{error:#}")),
    };
    source.register(&forge::blob_digest(&manifest), 1, bytes)?;
    source.publish(number, &forge::catalog(TENSOR, bytes), 1)?;
    Ok(reader.ask(&format!("replicate {number} 5000")).said().to_owned())
}
