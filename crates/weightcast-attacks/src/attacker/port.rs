//! A data port that lies: it shakes hands as any other, and answers what the attacker likes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};

use crate::attacker::data::{Frame, frame, key, mac};
use crate::attacker::forge::random;

/// Frames to answer a request with.
pub(crate) type PortAnswer = dyn Fn(&Frame) -> Vec<u8> + Send + Sync;

/// Listens until the process ends.
pub(crate) struct LyingPort {
    pub(crate) address: String,
    admitted: Arc<AtomicUsize>,
    knocked: Arc<AtomicUsize>,
}

impl LyingPort {
    pub(crate) fn open(at: &str, token: &str, answer: Arc<PortAnswer>) -> Result<Self> {
        let listener = TcpListener::bind(at)?;
        let address = listener.local_addr()?.to_string();
        let key = key(Some(token));
        let (admitted, knocked) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (inside, outside) = (Arc::clone(&admitted), Arc::clone(&knocked));
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                outside.fetch_add(1, Ordering::Relaxed);
                let (answer, inside) = (Arc::clone(&answer), Arc::clone(&inside));
                std::thread::spawn(move || converse(socket, &key, &inside, &*answer));
            }
        });
        Ok(Self { address, admitted, knocked })
    }

    /// Readers that shook hands.
    pub(crate) fn admitted(&self) -> usize {
        self.admitted.load(Ordering::Relaxed)
    }

    /// Connections of anybody.
    pub(crate) fn knocked(&self) -> usize {
        self.knocked.load(Ordering::Relaxed)
    }
}

fn converse(
    mut socket: TcpStream,
    key: &[u8; 32],
    admitted: &AtomicUsize,
    answer: &PortAnswer,
) -> Result<()> {
    let nonce = random::<32>();
    socket.write_all(&[b"wcdata2\n".as_slice(), &nonce].concat())?;
    let mut proof = [0; 72];
    socket.read_exact(&mut proof)?;
    ensure!(proof[40..] == mac(key, &nonce, &proof[8..40], b"reader"), "a stranger");
    let ours = mac(key, &nonce, &proof[8..40], b"source");
    socket.write_all(&[b"welcome\n".as_slice(), &ours].concat())?;
    admitted.fetch_add(1, Ordering::Relaxed);
    loop {
        let mut header = [0; 16];
        socket.read_exact(&mut header)?;
        let length = u64::from_le_bytes(*header[8..].first_chunk().expect("eight bytes"));
        ensure!(length <= 16 << 20, "too long");
        let mut body = vec![0; length as usize];
        socket.read_exact(&mut body)?;
        socket.write_all(&answer(&Frame { kind: header[4], status: header[5], body }))?;
    }
}

/// A refusal.
pub(crate) fn refusal(status: u8) -> Vec<u8> {
    frame(crate::attacker::data::REFUSED, status, &[])
}
