//! Either end of a data connection, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;

pub(crate) fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

/// Blocks until the other end has closed, however it did.
pub(crate) fn wait_closed(mut socket: TcpStream) {
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("not closed: {error}"),
        }
    }
}

/// What the sums of a local handshake cover beside the nonces and the role.
pub(crate) fn local_tail(pid: u32, port: u16) -> Vec<u8> {
    [b" of this host", &pid.to_le_bytes()[..], &port.to_le_bytes()].concat()
}

/// A reader's handshake by hand, without a token. The tail is empty over TCP.
pub(crate) fn prove<S: Read + Write>(mut socket: S, tail: &[u8]) -> std::io::Result<S> {
    let mut hello = [0; 40];
    socket.read_exact(&mut hello)?;
    let nonce = [9_u8; 32];
    let message = [&hello[8..], &nonce, b"reader", tail].concat();
    let mac = blake3::keyed_hash(&[0; 32], &message);
    socket.write_all(&[b"wcdata2\n", &nonce[..], mac.as_bytes()].concat())?;
    socket.read_exact(&mut [0; 40])?;
    Ok(socket)
}

/// A source's handshake by hand, without a token. The tail is empty over TCP.
pub(crate) fn welcome<S: Read + Write>(mut socket: S, tail: &[u8]) -> std::io::Result<S> {
    let nonce = [8_u8; 32];
    socket.write_all(&[b"wcdata2\n", &nonce[..]].concat())?;
    let mut proof = [0; 72];
    socket.read_exact(&mut proof)?;
    let mac = blake3::keyed_hash(&[0; 32], &[&nonce, &proof[8..40], b"source", tail].concat());
    socket.write_all(&[b"welcome\n", &mac.as_bytes()[..]].concat())?;
    Ok(socket)
}

/// Connects from that address of this host, and carries out the reader's handshake by hand.
pub(crate) fn shake_from(own: [u8; 4], addr: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let from = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&from, &SocketAddr::from((own, 0))).unwrap();
    connect(&from, &addr).unwrap();
    prove(from.into(), &[]).unwrap()
}

/// Connects, and carries out the reader's handshake by hand.
pub(crate) fn shake_as_reader(addr: SocketAddr) -> TcpStream {
    prove(TcpStream::connect(addr).unwrap(), &[]).unwrap()
}

/// Accepts a reader and carries out the source's handshake by hand, without a token.
pub(crate) fn shake_as_source(listener: &TcpListener) -> TcpStream {
    welcome(listener.accept().unwrap().0, &[]).unwrap()
}

/// Connects to the Unix socket of that name.
pub(crate) fn connect_locally(name: &[u8]) -> UnixStream {
    UnixStream::connect_addr(&local_address(name)).unwrap()
}

/// The address that a data port's answer to "which Unix socket is yours" stands for.
pub(crate) fn local_address(name: &[u8]) -> std::os::unix::net::SocketAddr {
    let name: String = name.iter().map(|byte| format!("{byte:02x}")).collect();
    std::os::unix::net::SocketAddr::from_abstract_name(format!("weightcast-data-{name}")).unwrap()
}

/// A frame, whatever its kind.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u64).to_le_bytes();
    [b"WCD1", &[kind, 0, 0, 0], &len[..], body].concat()
}

/// Takes one frame and returns its kind and body.
pub(crate) fn take_frame(socket: &mut impl Read) -> (u8, Vec<u8>) {
    let mut header = [0; 16];
    socket.read_exact(&mut header).unwrap();
    let len = u64::from_le_bytes(*header.last_chunk().unwrap());
    let mut body = vec![0; len as usize];
    socket.read_exact(&mut body).unwrap();
    (header[4], body)
}
