//! Either end of a data connection, byte by byte.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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

/// Carries out the reader's handshake by hand, without a token.
pub(crate) fn shake_as_reader(addr: SocketAddr) -> TcpStream {
    let mut socket = TcpStream::connect(addr).unwrap();
    let mut hello = [0; 40];
    socket.read_exact(&mut hello).unwrap();
    let nonce = [9_u8; 32];
    let message = [&hello[8..], &nonce, b"reader"].concat();
    let mac = blake3::keyed_hash(&[0; 32], &message);
    socket.write_all(&[b"wcdata1\n", &nonce[..], mac.as_bytes()].concat()).unwrap();
    socket.read_exact(&mut [0; 40]).unwrap();
    socket
}

/// Accepts a reader and carries out the source's handshake by hand, without a token.
pub(crate) fn shake_as_source(listener: &TcpListener) -> TcpStream {
    let mut socket = listener.accept().unwrap().0;
    let nonce = [8_u8; 32];
    socket.write_all(&[b"wcdata1\n", &nonce[..]].concat()).unwrap();
    let mut proof = [0; 72];
    socket.read_exact(&mut proof).unwrap();
    let mac = blake3::keyed_hash(&[0; 32], &[&nonce, &proof[8..40], b"source"].concat());
    socket.write_all(&[b"welcome\n", &mac.as_bytes()[..]].concat()).unwrap();
    socket
}

/// A frame, whatever its kind.
pub(crate) fn frame(kind: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u64).to_le_bytes();
    [b"WCD1", &[kind, 0, 0, 0], &len[..], body].concat()
}

/// Takes one frame and returns its kind and body.
pub(crate) fn take_frame(socket: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut header = [0; 16];
    socket.read_exact(&mut header).unwrap();
    let len = u64::from_le_bytes(*header.last_chunk().unwrap());
    let mut body = vec![0; len as usize];
    socket.read_exact(&mut body).unwrap();
    (header[4], body)
}
