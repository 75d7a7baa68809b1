//! Moves bytes between the memories of processes: registered regions, a data port, same-host
//! reads, and digests that ride on the copy. It knows byte ranges and generations, not tensors or
//! versions.
//!
//! A source process [`DataServer::bind`]s a data port and [`ExportTable::expose`]s [`Region`]s. A
//! reader [`Peer::connect`]s and [`read`]s a list of copies straight into regions of its own.
//! What else readers must know about an export goes with it as a note ([`ExportTable::annotate`],
//! [`Peer::note`]).
//!
//! Reading order: [`Region`], [`ExportTable`], [`Copy`](struct@Copy), [`read`] are what a user
//! holds. Below them: `pieces` cuts copies; a `lane` (direct, TCP, the reference) moves a piece;
//! `serve` answers at the other end, on sockets of a `listener`; `connect` says whose memory may be
//! read directly; `wire` and `handshake` are the data port's bytes; [`digest_at`] is the digest.
//! Every bound is in [`limits`].
//!
//! ```
//! use std::time::{Duration, Instant};
//! use weightcast_transport::*;
//!
//! // A source: one region, served at generation 1.
//! let server = DataServer::bind("127.0.0.1:0".parse()?, Auth::default())?;
//! let export = server.exports().expose(1, vec![Region::from_bytes(b"weights")?]);
//!
//! // A reader: seven bytes into memory of its own.
//! let deadline = Instant::now() + Duration::from_secs(5);
//! let peer = Peer::connect(server.addr(), &Auth::default(), deadline)?;
//! let target = Region::allocate(7)?;
//! let copies = vec![Copy::contiguous(0, 0, 0, 0, 7)];
//! let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
//! let digests = read(&jobs, std::slice::from_ref(&target), &ReadOptions::default())?;
//! assert_eq!(target.to_vec(), b"weights");
//! assert_eq!(digests, [digest_at(0, b"weights")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod allocation;
pub mod bench;
mod bounds;
mod computed;
mod connect;
mod copy;
mod credentials;
mod descriptors;
mod detach;
mod dial;
mod digest;
pub mod door;
mod engine;
mod error;
mod export;
mod exports;
mod fence_word;
mod filling;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod gauge;
mod handshake;
mod holds;
mod input;
mod lane;
pub mod limits;
mod listener;
mod local;
mod local_name;
mod note;
mod output;
mod patience;
mod peer;
mod pieces;
mod pool;
pub mod quantise;
mod racy;
mod region;
mod seats;
mod secret;
mod serve;
mod server;
mod slices;
mod socket;
mod stream;
mod stream_copy;
mod sys;
mod unit;
mod units;
mod wire;

// Where the lock-free words find their atomics: `weightcast-loom` lends them others.
use std::sync::atomic;

pub use computed::Compute;
pub use connect::Way;
pub use copy::{Copy, SourceJob};
pub use detach::detach;
pub use digest::{Digest, digest_at};
pub use engine::{ReadOptions, read};
pub use error::{Advice, Bound, ReadError, Refusal, TransportError};
pub use exports::{ExportId, ExportTable};
pub use filling::Filling;
pub use gauge::{Gauge, Reading};
#[doc(hidden)]
pub use holds::{HoldPoint, Holds};
pub use note::NoteError;
pub use peer::Peer;
pub use region::{Region, RegionError};
pub use secret::{Auth, Secret};
pub use server::{BindError, DataServer};
pub use units::{Part, Rows, Units};
pub use wire::{Extent, PlacedExtent};
