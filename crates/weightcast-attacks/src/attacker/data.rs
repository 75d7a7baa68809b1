//! The data port as a reader with the token speaks it.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::attacker::forge::random;

pub(crate) const IDENTIFY: u8 = 1;
pub(crate) const DESCRIBE: u8 = 2;
pub(crate) const READ: u8 = 3;
pub(crate) const DIGEST: u8 = 4;
pub(crate) const NOTE: u8 = 5;
pub(crate) const AWAIT: u8 = 6;
pub(crate) const WRITE: u8 = 7;
pub(crate) const IDENTITY: u8 = 129;
pub(crate) const DESCRIPTION: u8 = 130;
pub(crate) const DATA: u8 = 131;
pub(crate) const END: u8 = 133;
pub(crate) const REFUSED: u8 = 134;
pub(crate) const WRITTEN: u8 = 137;

const MAGIC: &[u8; 8] = b"wcdata2\n";
const WELCOME: &[u8; 8] = b"welcome\n";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A frame.
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) status: u8,
    pub(crate) body: Vec<u8>,
}

/// A rectangle of bytes: region, offset, bytes of a row, rows, pitch.
pub(crate) type Rectangle = [u64; 5];

/// The key of the handshake.
pub(crate) fn key(token: Option<&str>) -> [u8; 32] {
    token.map_or([0; 32], |token| {
        blake3::derive_key("weightcast 2025 data port handshake", token.as_bytes())
    })
}

pub(crate) fn mac(key: &[u8; 32], source: &[u8], reader: &[u8], role: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key, &[source, reader, role].concat()).as_bytes()
}

/// A frame as bytes.
pub(crate) fn frame(kind: u8, status: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"WCD1".to_vec();
    bytes.extend([kind, status, 0, 0]);
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

pub(crate) fn numbers(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// A request about one exposure.
pub(crate) fn ask(export: u64, generation: u64, extents: &[Rectangle]) -> Vec<u8> {
    let mut body = numbers(&[export, generation]);
    extents.iter().for_each(|extent| body.extend(numbers(extent)));
    body
}

/// What a writer claims of itself.
#[derive(Clone, Copy)]
pub(crate) struct WriteBy<'a> {
    pub(crate) grant: u64,
    pub(crate) generation: u64,
    pub(crate) secret: &'a [u8],
}

/// An admitted connection.
pub(crate) struct Data {
    pub(crate) socket: TcpStream,
    /// What both ends drew: source's, then reader's.
    nonces: [u8; 64],
    /// Writes that were sent over it.
    pub(crate) writes: u64,
}

impl Data {
    /// # Errors
    /// No port listens there, all places are taken, or the token is wrong.
    pub(crate) fn connect(address: &str, token: Option<&str>) -> Result<Self> {
        let address = address.to_socket_addrs()?.next().context("no address")?;
        let mut socket = TcpStream::connect_timeout(&address, PATIENCE)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let mut hello = [0; 40];
        socket.read_exact(&mut hello).context("no hello")?;
        ensure!(&hello[..8] == MAGIC, "no place: {:?}", String::from_utf8_lossy(&hello[..8]));
        let (key, nonce) = (key(token), random::<32>());
        let proof = mac(&key, &hello[8..], &nonce, b"reader");
        socket.write_all(&[MAGIC.as_slice(), &nonce, &proof].concat())?;
        let mut verdict = [0; 40];
        socket.read_exact(&mut verdict).context("no verdict")?;
        ensure!(&verdict[..8] == WELCOME, "denied");
        let nonces = [&hello[8..], &nonce].concat().try_into().expect("64 bytes");
        Ok(Self { socket, nonces, writes: 0 })
    }

    pub(crate) fn say(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        Ok(self.socket.write_all(&frame(kind, 0, body))?)
    }

    /// The first byte of the shortest request.
    pub(crate) fn say_first(&mut self) -> Result<()> {
        Ok(self.socket.write_all(&frame(IDENTIFY, 0, &[])[..1])?)
    }

    /// The other bytes of that request.
    pub(crate) fn say_rest(&mut self) -> Result<()> {
        Ok(self.socket.write_all(&frame(IDENTIFY, 0, &[])[1..])?)
    }

    pub(crate) fn hear(&mut self) -> Result<Frame> {
        let mut header = [0; 16];
        self.socket.read_exact(&mut header)?;
        let length = u64::from_le_bytes(*header[8..].first_chunk().expect("eight bytes"));
        ensure!(length <= 256 << 20, "a frame of {length} bytes");
        let mut body = vec![0; length as usize];
        self.socket.read_exact(&mut body)?;
        Ok(Frame { kind: header[4], status: header[5], body })
    }

    pub(crate) fn request(&mut self, kind: u8, body: &[u8]) -> Result<Frame> {
        self.say(kind, body)?;
        self.hear()
    }

    /// The next write on this connection, as the holder of a secret makes it.
    pub(crate) fn write_body(
        &mut self,
        by: &WriteBy<'_>,
        extents: &[Rectangle],
        bytes: &[u8],
    ) -> Vec<u8> {
        let mut body = numbers(&[by.grant, by.generation, extents.len() as u64]);
        extents.iter().for_each(|extent| body.extend(numbers(extent)));
        let key = blake3::derive_key("weightcast 2026 write grant", by.secret);
        let message = [&self.nonces[..], &self.writes.to_le_bytes(), &body].concat();
        body.extend(blake3::keyed_hash(&key, &message).as_bytes());
        body.extend(bytes);
        self.writes += 1;
        body
    }

    /// The bytes of one extent, and whether they were still served at their end.
    pub(crate) fn read(
        &mut self,
        export: u64,
        generation: u64,
        extent: Rectangle,
    ) -> Result<Vec<u8>> {
        let answer = self.request(READ, &ask(export, generation, &[extent]))?;
        if answer.kind != DATA {
            bail!("answered by {} ({})", answer.kind, answer.status);
        }
        let end = self.hear()?;
        ensure!(end.kind == END && end.status == 0, "fenced");
        Ok(answer.body)
    }
}
