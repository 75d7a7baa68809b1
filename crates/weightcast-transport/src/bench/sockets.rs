//! Raw loopback socket pairs: plain, and with a digest at both ends.

use crate::memory::digest::Digest;
use crate::memory::region::Region;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

/// How bytes are spread over raw sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SocketShape {
    /// Connections, each with a thread at either end; at least one.
    pub streams: usize,
    /// Bytes of one write, and of one read, at most; at least one.
    pub piece: usize,
}

/// Sends as many bytes as `target` holds through raw loopback connections into it.
///
/// # Errors
/// What the sockets return.
///
/// # Panics
/// If the target is read-only, or the source is shorter.
pub fn tcp(source: &Region, target: &Region, shape: SocketShape) -> io::Result<f64> {
    Ok(moved(source, target, shape, |_, _, _| Digest::ZERO)?.0)
}

/// The same, where each thread also digests its pieces: the sender before a piece is sent, the receiver once it is
/// there. Returns what the senders and what the receivers found as well.
///
/// # Errors
/// What the sockets return.
///
/// # Panics
/// If the target is read-only, or the source is shorter.
pub fn tcp_digested(
    source: &Region,
    target: &Region,
    shape: SocketShape,
) -> io::Result<(f64, [Digest; 2])> {
    let digest = |region: &Region, at: usize, len: usize| {
        region.digest(at, len, at as u64).expect("in range")
    };
    moved(source, target, shape, digest)
}

/// Moves the bytes, and sums what `digest` says of the pieces at either end.
fn moved<D>(
    source: &Region,
    target: &Region,
    shape: SocketShape,
    digest: D,
) -> io::Result<(f64, [Digest; 2])>
where
    D: Fn(&Region, usize, usize) -> Digest + Copy + Send,
{
    assert!(target.is_writable() && source.len() >= target.len(), "not enough to send");
    let pairs = pairs(shape.streams)?;
    let part = target.len().div_ceil(shape.streams);
    let start = Instant::now();
    let ends = thread::scope(|scope| {
        let mut ends = Vec::new();
        for (i, (sender, reader)) in pairs.into_iter().enumerate() {
            let from = (i * part).min(target.len());
            let part = part.min(target.len() - from);
            let pieces = move || pieces(from, part, shape.piece);
            let sent = scope.spawn(move || send(sender, source, pieces(), digest));
            ends.push([sent, scope.spawn(move || receive(reader, target, pieces(), digest))]);
        }
        let joined = ends.into_iter().map(|ends| ends.map(|end| end.join().expect("no panics")));
        joined.collect::<Vec<_>>()
    });
    let seconds = start.elapsed().as_secs_f64();
    let mut digests = [Digest::ZERO; 2];
    for ends in ends {
        for (sum, end) in digests.iter_mut().zip(ends) {
            *sum += end?;
        }
    }
    Ok((seconds, digests))
}

/// Connected sockets.
fn pairs(streams: usize) -> io::Result<Vec<(TcpStream, TcpStream)>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    let connect = |_| {
        let reader = TcpStream::connect(addr)?;
        Ok((listener.accept()?.0, reader))
    };
    (0..streams).map(connect).collect()
}

/// Where the pieces of a part begin, and how long each is.
fn pieces(from: usize, len: usize, piece: usize) -> impl Iterator<Item = (usize, usize)> {
    let end = from + len;
    (from..end).step_by(piece).map(move |at| (at, piece.min(end - at)))
}

fn send(
    mut socket: TcpStream,
    source: &Region,
    pieces: impl Iterator<Item = (usize, usize)>,
    digest: impl Fn(&Region, usize, usize) -> Digest,
) -> io::Result<Digest> {
    let mut sum = Digest::ZERO;
    for (at, len) in pieces {
        sum += digest(source, at, len);
        // SAFETY: a measurement's source is not written meanwhile.
        socket.write_all(unsafe { source.slice(at, len) }.expect("in range"))?;
    }
    Ok(sum)
}

fn receive(
    mut socket: TcpStream,
    target: &Region,
    pieces: impl Iterator<Item = (usize, usize)>,
    digest: impl Fn(&Region, usize, usize) -> Digest,
) -> io::Result<Digest> {
    let mut sum = Digest::ZERO;
    for (at, len) in pieces {
        // SAFETY: parts of a measurement's target do not overlap.
        socket.read_exact(unsafe { target.slice_mut(at, len) }.expect("in range"))?;
        sum += digest(target, at, len);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_arrives_in_every_shape_and_both_ends_digest_all_of_them() {
        for len in [1, 4_097, 3_000_005] {
            let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
            let source = Region::from_bytes(&bytes).unwrap();
            let whole = crate::digest_at(0, &bytes);
            for (streams, piece) in [(1, 1 << 20), (3, 256 << 10), (4, 4 << 20)] {
                let shape = SocketShape { streams, piece };
                let target = Region::allocate(len).unwrap();
                tcp(&source, &target, shape).unwrap();
                assert!(target.to_vec() == bytes, "{len} by {shape:?}");
                let target = Region::allocate(len).unwrap();
                let digests = tcp_digested(&source, &target, shape).unwrap().1;
                assert!(target.to_vec() == bytes, "{len} by {shape:?}, digested");
                assert_eq!(digests, [whole; 2], "{len} by {shape:?}");
            }
        }
    }

    #[test]
    fn pieces_leave_nothing_out_and_none_is_longer_than_it_may_be() {
        for (len, piece, lens) in
            [(0, 3, &[][..]), (1, 3, &[1]), (3, 3, &[3]), (7, 3, &[3, 3, 1]), (2, 9, &[2])]
        {
            let found: Vec<_> = pieces(10, len, piece).collect();
            assert_eq!(found.iter().map(|(_, len)| *len).collect::<Vec<_>>(), lens);
            let mut at = 10;
            for (from, len) in found {
                assert_eq!(from, at);
                at += len;
            }
        }
    }
}
