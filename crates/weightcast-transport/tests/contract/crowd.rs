//! Peers that want a data port for themselves: they sip their answers, or sit there.

use crate::by_hand::{frame, loopback, prove, shake_as_reader};
use crate::ways::soon;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Instant;
use weightcast_transport::Way::Tcp;
use weightcast_transport::*;

const ROLE: &str = "WEIGHTCAST_TEST_CROWDED";
/// Descriptors of the crowded process.
const DESCRIPTORS: u64 = 256;

fn read_abc(peer: &Peer, export: ExportId) {
    let to = [Region::allocate(3).unwrap()];
    let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 3)];
    let jobs = [SourceJob { peer, export, generation: 1, copies }];
    read(&jobs, &to, &TransferOptions { deadline: Some(soon()), ..Default::default() }).unwrap();
    assert_eq!(to[0].to_vec(), b"abc");
}

#[test]
fn readers_that_sip_their_answers_do_not_keep_others_out() {
    const PLACES: usize = 4;
    let server = DataServer::bind_for(loopback(), Auth::default(), PLACES).unwrap();
    let len = limits::MAX_READ_BYTES;
    let large = server.exports().expose(1, vec![Region::allocate(len as usize).unwrap()]);
    let small = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    let request = frame(3, &[large.0, 1, 0, 0, len, 1, len].map(u64::to_le_bytes).concat());
    let mut sipping: Vec<_> = (0..PLACES)
        .map(|_| {
            let mut socket = shake_as_reader(server.addr());
            socket.write_all(&request).unwrap();
            socket.read_exact(&mut [0; 16]).expect("the answer has begun");
            socket
        })
        .collect();
    let patience = soon();
    let peer = loop {
        match Peer::connect_by(Tcp, server.addr(), &Auth::default(), soon()) {
            Ok(peer) => break peer,
            Err(error) => assert_eq!(error, TransportError::Full { addr: server.addr() }),
        }
        assert!(Instant::now() < patience, "a reader that sips gives way");
        // A byte each: never stalled, never done.
        sipping.iter_mut().for_each(|socket| drop(socket.read(&mut [0])));
        thread::yield_now();
    };
    read_abc(&peer, small);
}

/// Not a test of its own: a process of few descriptors that serves, with so many files of its own,
/// and opens more when it is told to.
#[test]
fn crowded_process() {
    let Ok(own) = std::env::var(ROLE) else { return };
    let few = rustix::process::Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let open = |_| std::fs::File::open("/dev/null");
    let _own: Vec<_> = (0..own.parse().unwrap()).map(open).collect();
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    println!("\nserving {} {}", server.addr(), export.0);
    for more in std::io::stdin().lines().map_while(Result::ok) {
        let files: Vec<_> = (0..more.parse().unwrap()).map(open).collect();
        println!("failed {}", files.iter().filter(|file| file.is_err()).count());
    }
}

/// That process.
struct Crowded {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    addr: SocketAddr,
    export: ExportId,
}

impl Crowded {
    fn start(own_files: u64) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["crowd::crowded_process", "--exact", "--nocapture", "--test-threads=1"])
            .env(ROLE, own_files.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = said(&mut lines, "serving ");
        let words: Vec<&str> = line.split(' ').collect();
        let (addr, export) = (words[1].parse().unwrap(), ExportId(words[2].parse().unwrap()));
        Self { child, lines, addr, export }
    }

    /// Has it open so many files: it can, once connections that were closed are gone.
    fn opens_files(&mut self, count: u64) {
        let patience = soon();
        loop {
            writeln!(self.child.stdin.as_mut().unwrap(), "{count}").unwrap();
            let failed = said(&mut self.lines, "failed ");
            if failed == "failed 0" {
                return;
            }
            assert!(Instant::now() < patience, "of the process's own files {failed} to open");
            thread::yield_now();
        }
    }
}

fn said(lines: &mut Lines<BufReader<ChildStdout>>, what: &str) -> String {
    lines.map_while(Result::ok).find(|line| line.starts_with(what)).expect("the child lives")
}

impl Drop for Crowded {
    fn drop(&mut self) {
        let _ended = self.child.kill().and_then(|()| self.child.wait());
    }
}

#[test]
fn connections_that_are_reset_cost_nobody_a_place() {
    const RESETS: usize = 300;
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let mut honest: Vec<_> = (0..4).map(|_| shake_as_reader(server.addr())).collect();
    for _ in 0..RESETS {
        let socket = TcpStream::connect(server.addr()).unwrap();
        let at_once = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(&socket, at_once).unwrap();
    }
    // Who comes last is served last.
    honest.push(shake_as_reader(server.addr()));
    for mut socket in honest {
        socket.write_all(&frame(1, &[])).unwrap();
        socket.read_exact(&mut [0; 16]).expect("it was only idle");
    }
}

/// A process of few descriptors, most of which are its own.
#[test]
fn a_process_with_many_files_of_its_own_is_read_all_the_same() {
    let mut child = Crowded::start(DESCRIPTORS * 4 / 5);
    for _ in 0..DESCRIPTORS {
        let peer = Peer::connect_by(Tcp, child.addr, &Auth::default(), soon()).expect("a place");
        read_abc(&peer, child.export);
    }
    let mut sitting: Vec<_> =
        (0..DESCRIPTORS).map(|_| prove(TcpStream::connect(child.addr).unwrap(), &[])).collect();
    let peer = Peer::connect_by(Tcp, child.addr, &Auth::default(), soon()).expect("a place");
    read_abc(&peer, child.export);
    sitting.retain_mut(|reader| reader.as_mut().is_ok_and(is_served));
    assert!(sitting.len() > 5, "{} of them have a place", sitting.len());
    child.opens_files(DESCRIPTORS / 50);
}

/// Whether it has its place.
fn is_served(reader: &mut TcpStream) -> bool {
    reader.write_all(&frame(1, &[])).is_ok() && reader.read_exact(&mut [0; 16]).is_ok()
}

#[test]
fn readers_that_sit_there_leave_descriptors_to_the_process() {
    let mut child = Crowded::start(0);
    let sitting: Vec<_> = (0..DESCRIPTORS + 50)
        // Some are turned away, some make room for others.
        .map(|_| prove(TcpStream::connect(child.addr).unwrap(), &[]))
        .collect();
    child.opens_files(DESCRIPTORS / 5);
    for way in [Tcp, weightcast_transport::Way::Direct] {
        let peer = Peer::connect_by(way, child.addr, &Auth::default(), soon()).expect("a place");
        read_abc(&peer, child.export);
    }
    drop(sitting);
}
