//! An owner that breaks the contract: it writes what it serves, and fences nothing first.

use crate::ways::{Way, soon};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use weightcast_transport::*;

for_every_way!(a_digest_is_that_of_the_bytes_that_came);

const LEN: usize = 300_000;
/// Bytes of a short row, of which all have as many.
const ROW: u64 = 1_200;

/// Is raised at the end, a panic included.
struct Raised<'a>(&'a AtomicBool);

impl Drop for Raised<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn contiguous(source: u64, target: u64, len: u64) -> StridedCopy {
    StridedCopy::contiguous(0, source, 0, target, len)
}

/// Which bytes come is left open. But their digest is theirs: else a reader would commit wrong ones as verified.
/// Targets lie as their tensor does, to a word, and in no such way; rows are long and short.
fn a_digest_is_that_of_the_bytes_that_came<W: Way>() {
    let way = W::new();
    let memory = W::memory(LEN);
    let export = way.exports().expose(1, vec![memory.clone()]);
    let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let target = Region::allocate(LEN + 64).unwrap();
    let whole = |at: u64| vec![StridedCopy { position: 0, ..contiguous(0, at, LEN as u64) }];
    // A slot for every other row keeps rows apart that have no gap between them.
    let rows = |at: u64| -> Vec<_> {
        let row = |row: u64| StridedCopy {
            position: row * ROW,
            slot: row as u32 % 2,
            ..contiguous(row * ROW, at + row * ROW, ROW)
        };
        (0..LEN as u64 / ROW).map(row).collect()
    };
    let wrong = thread::scope(|scope| {
        let _over = Raised(&over);
        scope.spawn(|| {
            while !over.load(Relaxed) {
                let value = written.fetch_add(1, Relaxed);
                memory.write_at(0, &value.to_le_bytes().repeat(LEN / 8)).unwrap();
            }
        });
        let mut wrong = Vec::new();
        for turn in 0_u64.. {
            let at = [0, 16, 2, 32, 5][turn as usize % 5];
            let copies = if turn % 2 == 0 { whole(at) } else { rows(at) };
            let options =
                TransferOptions { slots: 2, deadline: Some(soon()), ..TransferOptions::default() };
            let targets = std::slice::from_ref(&target);
            let digests = read(&[way.job(export, copies)], targets, &options).unwrap();
            let came = target.digest(at as usize, LEN, 0).unwrap();
            if digests.into_iter().sum::<Digest>() != came {
                wrong.push(turn);
            }
            if turn >= 100 && written.load(Relaxed) >= 100 {
                break;
            }
        }
        wrong
    });
    assert_eq!(wrong, [0; 0], "reads whose digest is another's");
    way.came(export);
}
