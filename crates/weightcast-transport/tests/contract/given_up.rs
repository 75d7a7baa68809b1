//! A read that is given up between two pieces does not take the next one.

use crate::ways::{Way, arrived, soon};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weightcast_transport::limits::PIECE_BYTES;
use weightcast_transport::*;

for_every_way!(nothing_is_taken_after_a_cancellation, whoever_gives_up_waiting_was_not_fenced);

fn nothing_is_taken_after_a_cancellation<W: Way>() {
    let way = W::new();
    let len = 8 * PIECE_BYTES;
    let export = way.exports().expose(1, vec![W::memory(len)]);
    let mut options =
        TransferOptions { threads: 1, deadline: Some(soon()), ..TransferOptions::default() };
    let cancel = Arc::clone(&options.cancel);
    options.holds = Holds::new(move |point| {
        if point == HoldPoint::Telling {
            cancel.store(true, Ordering::Release);
        }
    });
    let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, len as u64)])];
    let error = read(&jobs, &[Region::allocate(len).unwrap()], &options).unwrap_err();
    assert_eq!(error.kind, TransportError::Cancelled);
    assert_eq!(arrived(&options), PIECE_BYTES as u64);
}

/// The source is as it was: nobody need look for another.
fn whoever_gives_up_waiting_was_not_fenced<W: Way>() {
    let way = W::new();
    let memory = vec![W::memory(PIECE_BYTES)];
    let (filling, export) = (Arc::new(Filling::new(&memory)), ExportId::random());
    way.exports().expose_filling(export, 1, memory, filling);
    let mut options =
        TransferOptions { threads: 1, deadline: Some(soon()), ..TransferOptions::default() };
    let cancel = Arc::clone(&options.cancel);
    options.holds = Holds::new(move |point| {
        if point == HoldPoint::Waiting {
            cancel.store(true, Ordering::Release);
        }
    });
    way.exports().hold(export, options.holds.clone());
    let jobs = [way.job(export, vec![StridedCopy::contiguous(0, 0, 0, 0, 8)])];
    let error = read(&jobs, &[Region::allocate(8).unwrap()], &options).unwrap_err();
    assert_eq!(error.kind, TransportError::Cancelled);
}
