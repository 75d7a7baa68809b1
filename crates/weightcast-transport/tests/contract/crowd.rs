//! Peers that want a data port for themselves: they sip their answers, or sit there.

use crate::by_hand::{frame, loopback, prove, shake_as_reader};
use crate::ways::soon;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;
use weightcast_transport::Way::Tcp;
use weightcast_transport::*;

const ROLE: &str = "WEIGHTCAST_TEST_CROWDED";
/// Descriptors of the crowded process.
const DESCRIPTORS: u64 = 256;

fn read_abc(peer: &Peer, export: ExportId) {
    let to = [Region::allocate(3).unwrap()];
    let copies = vec![Copy::contiguous(0, 0, 0, 0, 3)];
    let jobs = [SourceJob { peer, export, generation: 1, copies }];
    read(&jobs, &to, &ReadOptions { deadline: Some(soon()), ..Default::default() }).unwrap();
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

/// Not a test of its own: a process of few descriptors that serves, and opens files when it is told
/// to.
#[test]
fn crowded_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let few = rustix::process::Rlimit { current: Some(DESCRIPTORS), maximum: Some(DESCRIPTORS) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    let server = DataServer::bind(loopback(), Auth::default()).unwrap();
    let export = server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()]);
    println!("\nserving {} {}", server.addr(), export.0);
    let _told = std::io::stdin().read(&mut [0]);
    let opened = || std::fs::File::open("/dev/null").and(std::net::TcpListener::bind(loopback()));
    let files: Vec<_> = (0..DESCRIPTORS / 10).map(|_| opened()).collect();
    let failed = files.iter().filter(|file| file.is_err()).count();
    println!("failed {failed}");
    let _ended = std::io::stdin().read(&mut [0]);
}

#[test]
fn readers_that_sit_there_leave_descriptors_to_the_process() {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["crowd::crowded_process", "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut said = |what: &str| lines.find(|line| line.starts_with(what)).expect("the child lives");
    let line = said("serving ");
    let words: Vec<&str> = line.split(' ').collect();
    let addr: SocketAddr = words[1].parse().unwrap();
    let export = ExportId(words[2].parse().unwrap());
    let sitting: Vec<_> = (0..DESCRIPTORS + 50)
        // Some are turned away, some make room for others.
        .map(|_| prove(TcpStream::connect(addr).unwrap(), &[]))
        .collect();
    child.stdin.as_mut().unwrap().write_all(b".").unwrap();
    assert_eq!(said("failed "), "failed 0", "the process's own files open");
    for way in [Tcp, weightcast_transport::Way::Direct] {
        let peer = Peer::connect_by(way, addr, &Auth::default(), soon()).expect("a place");
        read_abc(&peer, export);
    }
    drop(sitting);
    child.kill().unwrap();
    child.wait().unwrap();
}
