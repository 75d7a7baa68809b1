//! Proves the ways of moving bytes between two processes of this host: this one serves memory, and a second one, of
//! the same program, reads it.
//!
//! The second process is the reader: a kernel that restricts `ptrace` lets a process read those that it has started,
//! never the one that has started it, which is what two workers are to each other.

mod order;
mod reader;

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use weightcast_transport::{Auth, DataServer, Digest, Region};

use self::order::{GENERATION, SelfTestOrder, WAYS, WayReport};
pub use self::reader::self_test_reader;
use super::judgement::ways::Trial;
use crate::auth;

/// Bytes of one read: beyond what caches hold, and copied in some milliseconds.
const BYTES: usize = 64 << 20;
/// How long the second process may take. Each of its steps has a deadline of its own, which is shorter.
const PATIENCE: Duration = Duration::from_secs(20);
/// What it may say: a line for each way.
const SAID_BYTES: u64 = 16 << 10;

/// The trials of a direct read, of TCP and of shared memory. `program` is a command that runs [`self_test_reader`]; `ip` is what a data
/// port would bind.
pub(super) fn trials(program: &[String], ip: Result<IpAddr, String>) -> [Trial; 3] {
    let untried = |why: &str| WAYS.map(|_| Trial::NotTried(why.to_owned()));
    let Some((program, arguments)) = program.split_first() else {
        return untried("there is no program to start a second process with");
    };
    let source = match Source::serve(ip) {
        Ok(source) => source,
        Err(why) => return WAYS.map(|_| Trial::Failed(why.clone())),
    };
    let mut command = Command::new(program);
    let said = match converse(command.args(arguments), &source.order()) {
        Ok(said) => said,
        Err(why) => return untried(&format!("no second process ({program}): {why}")),
    };
    let [direct, tcp, shared] = WAYS.map(|way| source.trial(WayReport::find(way, &said)));
    let tcp = source.tcp_failed.map_or(tcp, Trial::Failed);
    [direct, tcp, source.shared.err().map_or(shared, Trial::Failed)]
}

/// The memory that is read.
struct Source {
    server: DataServer,
    auth: Auth,
    export: u64,
    /// The export of as much shared memory, or why there is none.
    shared: Result<u64, String>,
    digest: Digest,
    /// Why the address for data ports cannot be bound, so that loopback serves instead.
    tcp_failed: Option<String>,
}

impl Source {
    fn serve(ip: Result<IpAddr, String>) -> Result<Self, String> {
        // Of this test alone: the job's own token goes to no other process.
        let token = auth::new_token().map_err(|error| error.to_string())?;
        let auth = Auth::with_token(token);
        let bind = |ip| DataServer::bind(SocketAddr::new(ip, 0), auth.clone());
        let bound = ip.and_then(|ip| bind(ip).map_err(|error| error.to_string()));
        let (server, tcp_failed) = match bound {
            Ok(server) => (server, None),
            Err(why) => (bind(Ipv4Addr::LOCALHOST.into()).map_err(|e| e.to_string())?, Some(why)),
        };
        let region = Region::allocate(BYTES).map_err(|error| error.to_string())?;
        fill(&region);
        let digest = region.digest(0, BYTES, 0).expect("the whole region");
        let expose = |region| server.exports().expose(GENERATION, vec![region]).0;
        let shared = shared_memory(Region::allocate_shared(BYTES)).map(expose);
        let export = expose(region);
        Ok(Self { server, auth, export, shared, digest, tcp_failed })
    }

    fn order(&self) -> SelfTestOrder {
        let mut address = self.server.addr();
        // All addresses of this host are none to connect to.
        match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let token = self.auth.token.clone().expect("it was drawn");
        let shared = self.shared.as_ref().ok().copied();
        SelfTestOrder { address, token, export: self.export, shared, bytes: BYTES as u64 }
    }

    /// What a report comes to.
    fn trial(&self, report: Option<WayReport>) -> Trial {
        match report {
            Some(WayReport::Read { digest, .. }) if digest != self.digest => Trial::Wrong,
            Some(WayReport::Read { seconds, .. }) => Trial::Moved { bytes: BYTES as u64, seconds },
            Some(WayReport::Failed(why)) => Trial::Failed(why),
            None => Trial::NotTried("the second process ended before it had tried".to_owned()),
        }
    }
}

/// The memory with its bytes, if it could be made, mapped and sealed.
fn shared_memory(made: io::Result<Region>) -> Result<Region, String> {
    let region = made.map_err(|error| format!("no memory can be shared: {error}"))?;
    fill(&region);
    Ok(region)
}

/// Bytes that repeat nowhere near.
fn fill(region: &Region) {
    let block: Vec<u8> = (0..1_usize << 20).map(|i| (i * 31 + i / 251) as u8).collect();
    for at in (0..region.len()).step_by(block.len()) {
        let part = block.len().min(region.len() - at);
        region.write_at(at, &block[..part]).expect("within the region");
    }
}

/// Starts the second process, and hears all that it says.
fn converse(command: &mut Command, order: &SelfTestOrder) -> Result<String, String> {
    let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = pipes.spawn().map_err(|error| error.to_string())?;
    let said = hear(&mut child, order);
    // It may be anything that does not end by itself.
    let _ended_already = child.kill();
    let _reaped = child.wait();
    said
}

fn hear(child: &mut Child, order: &SelfTestOrder) -> Result<String, String> {
    let mut orders = child.stdin.take().expect("piped");
    let answers = child.stdout.take().expect("piped");
    // A process that takes no order ends without a report.
    let _taken = writeln!(orders, "{}", order.line());
    drop(orders);
    let (send, said) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = answers.take(SAID_BYTES).read_to_string(&mut text);
        let _given_up = send.send(read.map(|_| text));
    });
    match said.recv_timeout(PATIENCE) {
        Ok(text) => text.map_err(|error| error.to_string()),
        Err(_) => Err(format!("it did not end within {PATIENCE:?}")),
    }
}

#[cfg(test)]
mod tests;
