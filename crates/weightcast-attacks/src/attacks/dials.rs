//! A server that connects back to its callers, as a tool against what its callers cannot reach themselves.

use std::net::TcpListener;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::neighbours::{Canary, own_address};
use crate::attacker::control::ControlClient;
use crate::attacker::forge::random;
use crate::attacker::runtime::{handle, run};
use crate::attacker::wire::{DialBackRequest, Reach};
use crate::scene::Scene;
use crate::scene::victims::VictimServer;

/// Connections of the attacker, each of which asks for dials.
const CONNECTIONS: usize = 64;
/// Dials that each asks for at once.
const AT_ONCE: usize = 8;
/// Dials that a server has under way at most.
const DIALS: usize = 16;
/// Longer than a dial may take.
const LONG: Duration = Duration::from_secs(4);

fn dial(control: &ControlClient, port: u32, nonce: &[u8]) -> Result<Reach, tonic::Status> {
    let (mut rpc, nonce) = (control.rpc.clone(), nonce.to_vec());
    let reply = run(async move { rpc.dial_back(DialBackRequest { port, nonce }).await });
    let reply = reply.map_err(|error| tonic::Status::deadline_exceeded(error.to_string()))?;
    Ok(reply?.into_inner().reach())
}

pub(super) fn back(scene: &mut Scene) -> Result<()> {
    scene.begin()?;
    // Whoever comes over loopback may be the end of a tunnel: the services of the server's host are not the caller's.
    let service = Canary::sit("127.0.0.1")?;
    let control = scene.control()?;
    for port in [u32::from(service.port), 22, 1_023, 0, (1 << 16) + u32::from(service.port)] {
        let said = dial(&control, port, &random::<16>());
        scene.expect(said.is_err(), || format!("over loopback port {port} is dialled: {said:?}"));
    }
    if let Some(own) = own_address() {
        beyond_loopback(scene, &own)?;
    } else {
        scene.note("this host has no address beside loopback: dials are only refused");
    }
    let knocks = service.knocks.load(Ordering::Relaxed);
    scene
        .expect(knocks == 0, || format!("the server came to a service of its host {knocks} times"));
    Ok(())
}

/// A server that the attacker reaches over a network, and that may dial the attacker's host.
fn beyond_loopback(scene: &mut Scene, own: &str) -> Result<()> {
    let (address, token) = (format!("{own}:0"), scene.workspace.token_file());
    let arguments = ["--address", &address, "--token-file", &token];
    let mut server = VictimServer::start(&scene.workspace, &arguments)?;
    scene.watch_process("dialling server", server.id());
    let control = ControlClient::new(&server.address, Some(&scene.workspace.token))?;
    let service = Canary::sit(own)?;
    let port = u32::from(service.port);
    for (port, nonce) in
        [(22, 16), (1_023, 16), (0, 16), (1 << 16 | port, 16), (port, 15), (port, 4_096)]
    {
        let said = dial(&control, port, &vec![7; nonce]);
        let refused = said.as_ref().is_err_and(|said| said.code() == tonic::Code::InvalidArgument);
        scene.expect(refused, || format!("port {port}, nonce of {nonce} bytes: {said:?}"));
    }
    let said = dial(&control, port, &random::<16>());
    scene.expect(matches!(said, Ok(Reach::Reached)), || format!("its own port: {said:?}"));
    flood(scene, &server, own)?;
    let lives = server.lives();
    scene.expect(lives, || "the dialling server is dead".to_owned());
    Ok(())
}

/// Dials that hang, as many as can be asked for: to a port whose queue is full, where connecting takes for ever.
fn flood(scene: &mut Scene, server: &VictimServer, own: &str) -> Result<()> {
    let full = TcpListener::bind((own, 0))?;
    rustix::net::listen(&full, 0)?;
    let target = full.local_addr()?;
    let fill = || std::net::TcpStream::connect_timeout(&target, Duration::from_millis(300)).ok();
    let held: Vec<_> = (0..AT_ONCE).map_while(|_| fill()).collect();
    let (started, token) = (Instant::now(), scene.workspace.token.clone());
    let mut asked = Vec::new();
    for _ in 0..CONNECTIONS {
        let control = ControlClient::new(&server.address, Some(&token))?;
        for _ in 0..AT_ONCE {
            let mut rpc = control.rpc.clone();
            let request =
                DialBackRequest { port: target.port().into(), nonce: random::<16>().to_vec() };
            asked.push(handle().spawn(async move { rpc.dial_back(request).await }));
        }
    }
    let mut dialled = 0;
    for asked in asked {
        dialled += usize::from(run(asked)??.is_ok());
    }
    let took = started.elapsed();
    scene
        .note(format!("{dialled} of {} dials were made, within {took:.1?}", CONNECTIONS * AT_ONCE));
    // Those that end make room for others that are still on their way.
    let most = DIALS * (1 + took.as_secs() as usize);
    scene.expect(dialled <= most, || format!("{dialled} dials, more than {most}"));
    scene.expect(took < LONG + LONG, || format!("the flood took {took:.1?}"));
    drop(held);
    Ok(())
}
