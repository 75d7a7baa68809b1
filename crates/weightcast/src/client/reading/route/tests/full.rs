//! A data port without a place left.

use std::io::{Read, Write, copy};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use super::*;

/// What a source sends instead of its hello when it has no place.
fn full() -> [u8; 40] {
    let mut said = [0; 40];
    said[..8].copy_from_slice(b"wcfull!\n");
    said
}

/// A port in front of a server. It refuses the first connection as full, lets the second in and
/// says nothing until the reader gives up, and relays the third to the server.
fn full_at_first(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap();
    let next = move || listener.accept().unwrap().0;
    // Nobody waits for it: a reader that gives up early never comes again.
    thread::spawn(move || {
        next().write_all(&full()).unwrap();
        // The end, or that it was cut off.
        let _ = next().read_to_end(&mut Vec::new());
        relay(&next(), &TcpStream::connect(server).unwrap());
    });
    port
}

fn relay(reader: &TcpStream, server: &TcpStream) {
    let through = |mut from: &TcpStream, mut to: &TcpStream| {
        let _ = copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    };
    thread::scope(|scope| {
        scope.spawn(|| through(reader, server));
        through(server, reader);
    });
}

/// One try at a full port may time out before a place is free: the next try has as much time again.
#[test]
fn each_try_at_a_full_port_has_time_of_its_own() {
    let server = DataServer::bind("127.0.0.1:0".parse().unwrap(), auth()).unwrap();
    let port = full_at_first(server.addr()).to_string();
    let networks = Networks::new(&Options::new(Role::Rollout), "localhost:1", None).unwrap();
    let routes = Routes::new(auth(), Way::Tcp, networks, None);
    let peer = routes.peer(&port, soon()).unwrap();
    assert_eq!(peer.way(), Way::Tcp);
    assert_eq!(server.connections(), 1);
}
