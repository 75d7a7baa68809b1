//! Moves bytes between the memories of processes: registered regions, a data port, same-host
//! reads, and digests that ride on the copy. It knows byte ranges and generations, not tensors or
//! versions.
//!
//! A source process [`DataServer::bind`]s a data port and [`ExportTable::expose`]s [`Region`]s. A
//! reader [`Peer::connect`]s and [`read`]s a list of copies straight into regions of its own.
//! What else readers must know about an export goes with it as a note ([`ExportTable::annotate`],
//! [`Peer::note`]).
//!
//! Rooms, in reading order. Each uses only rooms before it (`.ci/circles`):
//!
//! 1. `base`: errors, ids, and every bound ([`limits`]).
//! 2. `memory`: a [`Region`], and copies and digests of its bytes ([`digest_at`]).
//! 3. `piece`: a [`StridedCopy`], cut into pieces, and the [`Units`] of their progress.
//! 4. `wire`: frames and handshake, and the connections that carry them.
//! 5. `export`: what a process serves, in an [`ExportTable`], behind fence words.
//! 6. `port`: a [`DataServer`] lets readers in and answers them.
//! 7. `lane`: the ways of moving a piece: direct, TCP, the reference.
//! 8. `engine`: [`read`] runs the jobs of a transfer over the lanes of their [`Peer`]s. [`Peer::view`] copies nothing:
//!    it maps memory that the source shares.
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
//! let copies = vec![StridedCopy::contiguous(0, 0, 0, 0, 7)];
//! let jobs = [SourceJob { peer: &peer, export, generation: 1, copies }];
//! let digests = read(&jobs, std::slice::from_ref(&target), &TransferOptions::default())?;
//! assert_eq!(target.to_vec(), b"weights");
//! assert_eq!(digests, [digest_at(0, b"weights")]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod base;
mod engine;
mod export;
mod lane;
mod memory;
mod piece;
mod port;
mod wire;

pub mod bench;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;

pub use base::detach::detach;
pub use base::error::{Advice, Bound, ReadError, RequestRefusal, TransportError, WriteError};
#[doc(hidden)]
pub use base::holds::{HoldPoint, Holds};
pub use base::id::{ExportId, GrantId};
pub use base::limits;
pub use base::secret::{Auth, Secret};
pub use engine::gauge::{Gauge, Reading};
pub use engine::job::{SourceJob, TargetJob};
pub use engine::options::TransferOptions;
pub use engine::peer::Peer;
pub use engine::read::read;
pub use engine::write::write;
pub use export::grant::{GrantError, GrantTerms, WriteGrant};
pub use export::note::NoteError;
pub use export::table::ExportTable;
pub use lane::ExportView;
pub use lane::way::Way;
pub use memory::computed::Compute;
pub use memory::digest::{Digest, digest_at};
pub use memory::kind::MemoryKind;
pub use memory::numa::NumaError;
pub use memory::quantise;
pub use memory::region::{Region, RegionError};
pub use memory::shared::is_shared;
pub use piece::copy::StridedCopy;
pub use piece::extent::{Extent, PlacedExtent};
pub use piece::filling::Filling;
pub use piece::units::{RowRange, Rows, Units};
pub use port::door;
pub use port::server::{BindError, DataServer};
