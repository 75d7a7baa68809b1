//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Largest body of a request: [`MAX_EXTENTS`] fit. Each connection may have one in memory, whole or
/// in part and as it was decoded.
pub const MAX_REQUEST_BYTES: usize = 256 << 10;

/// Largest body of an answer, but for bytes of regions and notes: a description of [`MAX_REGIONS`]
/// fits.
pub const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Extents in one request. 5,000 tiny tensors need a handful of requests; more than this would
/// only make one answer long, and what all connections hold of requests large.
pub const MAX_EXTENTS: usize = 4 << 10;

/// Bytes that one write carries: frame and extents fit into [`MAX_REQUEST_BYTES`] beside them. A write is
/// received whole before the first byte of memory changes, so each connection may have one in memory.
pub const WRITE_PIECE_BYTES: usize = 128 << 10;

/// Writes under way on one stream: a long path's worth of [`WRITE_PIECE_BYTES`], and few enough that
/// their bytes are still in the cache when they are digested.
pub const WRITE_WINDOW: usize = 8;

/// Bytes of one word: a request holds one, with its proof.
pub const MAX_WORD_BYTES: usize = MAX_REQUEST_BYTES - 32;

/// Grants of one process that are open at once: those of a generation, one for each writer of each shard.
pub const MAX_GRANTS: usize = 4 << 10;

/// Payload of one answered read. It bounds how long an answer keeps its source busy after a
/// fence, when only zeros are sent to finish the frame.
pub const MAX_READ_BYTES: u64 = 64 << 20;

/// Runs of one read, or of what is waited for: each costs the source some ten nanoseconds beside
/// its bytes. Readers ask for [`MAX_PIECE_ROWS`] at most.
pub const MAX_READ_ROWS: u64 = 64 << 10;

/// Bytes of one digest request: well under a second of one core of the source.
pub const MAX_DIGEST_BYTES: u64 = 1 << 30;

/// Runs of one digest request: as long as the bytes take.
pub const MAX_DIGEST_ROWS: u64 = 4 << 20;

/// Work between two looks whether a digest is still wanted, in bytes: a millisecond or so, which is
/// what fencing or closing may wait.
pub const SLICE_COST: u64 = 4 << 20;

/// What a run costs beside its bytes, in bytes.
pub const ROW_COST: u64 = 256;

/// Threads of one data port that digest at once, however many readers ask: the process that serves
/// has its own work.
pub const DIGESTING: usize = 2;

/// Regions of one export: the tensors of a shard at most, and a description fits in a frame.
pub const MAX_REGIONS: usize = 200_000;

/// Descriptors in a description of an export: one for each lane that its source offers, those of later
/// releases included.
pub const MAX_DESCRIPTORS: usize = 16;

/// Files of shared memory that one export may lie in: the kernel passes 253 descriptors at once, and each
/// counts against the reader's limit of open files while it is passed.
pub const MAX_LENT_FILES: usize = 200;

/// Exports whose shared memory a reader keeps mapped for one source: those that are served side by side.
pub const MAX_MAPPED_EXPORTS: usize = 16;

/// Bytes of the note on an export: a 40-byte entry for each of [`MAX_REGIONS`] regions fits.
pub const MAX_NOTE_BYTES: usize = 8 << 20;

/// Longest wait for a note that is asked of a data port at once: the connection and its thread are taken
/// meanwhile. Whoever wants to wait longer asks again.
pub const MAX_NOTE_WAIT: Duration = Duration::from_secs(30);

/// Connections that have not proved the token yet: each costs a thread and is worth nothing. The
/// origin with most of them loses its oldest.
pub const MAX_UNAUTHENTICATED: usize = 256;

/// Connections of one data port, each with a thread of [`CONNECTION_STACK_BYTES`]. A newcomer takes
/// the place of a connection that is idle, or slow, or of a holder with more places; a newcomer is
/// turned away only if there is no such connection.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Connections of one process of this host, as the kernel names it: it needs one at a time. Over
/// TCP all processes of a host look alike, so there the one that holds more gives way first.
pub const MAX_PROCESS_CONNECTIONS: usize = 64;

/// How long a busy connection is left alone, however slow: an answer begins with a round trip, and
/// a relay's reader waits for bytes that have not arrived yet. A shorter rest does not end the busy
/// time: otherwise a reader that asks for little again and again would always seem to have just begun.
pub const BUSY_GRACE: Duration = Duration::from_secs(5);

/// How long a new connection keeps its place before its first request, which is on its way here.
/// Otherwise connections that one reader opens together would drive each other out.
pub const NEWCOMER_GRACE: Duration = Duration::from_secs(1);

/// How long a reader waits for a place at a port that is full: slow connections keep their places
/// for [`BUSY_GRACE`].
pub const FULL_PATIENCE: Duration = Duration::from_secs(8);

/// Bytes a second below which a busy connection gives its place to a newcomer, if no other does. A
/// port that is full of those that take less serves fewer than it could.
pub const MIN_BUSY_RATE: u64 = 1 << 20;

/// Descriptors that a data port leaves to its process, or a quarter of what that may have, or half of
/// what it has not used itself, if that is less: files, sockets and other ports must open however
/// many connect here.
pub const RESERVED_DESCRIPTORS: u64 = 256;

/// Stack of a connection's thread: its buffers are on the heap.
pub const CONNECTION_STACK_BYTES: usize = 256 << 10;

/// A handshake is two short messages; a peer that needs longer is no reader.
pub const HANDSHAKE_DEADLINE: Duration = Duration::from_secs(5);

/// Slowest delivery of a frame once it has begun, either way, in bytes a second: slower is an attack
/// or a dead link. Between frames a connection may idle for ever.
pub const MIN_FRAME_RATE: u64 = 1 << 10;

/// What a frame may take beyond [`MIN_FRAME_RATE`]: retransmissions happen.
pub const FRAME_GRACE: Duration = Duration::from_secs(2);

/// A reader that takes no byte of its answer for this long loses the connection: it would hold
/// the source's memory. So does one that falls this far behind [`MIN_FRAME_RATE`].
pub const SEND_STALL: Duration = Duration::from_secs(10);

/// How long a source that is to help another may take to describe what it serves; the read does without it then.
pub const HELPER_PATIENCE: Duration = Duration::from_millis(500);

/// How often a blocked socket call looks at cancellation and deadline. A blocked thread wakes at
/// this pace only while a transfer runs.
pub const TICK: Duration = Duration::from_millis(50);

/// Most bytes of one piece: what is copied, checked against the fence word and digested while it
/// is still in the cache. A relay's pieces are no larger than its units of progress.
pub const PIECE_BYTES: usize = 512 << 10;

/// Units of progress that a shard's memory is cut into, as far as their bounds allow.
pub const UNITS: u64 = 256;

/// Smallest unit of progress: what is asked for in smaller pieces costs more in requests than
/// readers of a relay win.
pub const MIN_UNIT_BYTES: u64 = 64 << 10;

/// Largest unit of progress: each relay of a chain adds the time of one.
pub const MAX_UNIT_BYTES: u64 = 16 << 20;

/// Bytes that one call receives from a stream before they are digested. Together with the kernel's buffers, which the call
/// reads, so many fit into a processor's second cache.
pub const RECEIVED_BYTES: usize = 128 << 10;

/// Rows of one piece: the kernel takes [`MAX_RANGES`] a call; one goes to the fence word, and each
/// row may bring a gap with it.
pub const MAX_PIECE_ROWS: usize = 510;

/// Largest gap between two rows of a source that a direct read reads along and throws away: every
/// range of its own costs the kernel as much time as some thousand bytes.
pub const MAX_GAP_BYTES: u64 = 8 << 10;

/// Largest gap between two regions of a source that a direct read reads along and throws away: less than
/// a page, so that no page lies in it which may not be read.
pub const MAX_GAP_BETWEEN_REGIONS: u64 = (4 << 10) - 1;

/// Extents in one piece, so that several requests of tiny copies fit into [`PIPELINE_BYTES`].
pub const MAX_PIECE_EXTENTS: usize = 256;

/// Fewest requests under way on one stream. One is answered while the next is on its way; more
/// would only lie in the receive queue until they are no longer in the cache.
pub const MIN_WINDOW: usize = 2;

/// Most requests under way on one stream: 32 MiB, a long path's worth.
pub const MAX_WINDOW: usize = 64;

/// Bytes of unanswered requests on one stream. It must fit into a socket's smallest buffers:
/// beyond them reader and source could each wait for the other to take its bytes.
pub const PIPELINE_BYTES: usize = 32 << 10;

/// Bytes that the server hands to the kernel at once, between two looks at the fence word.
pub const SEND_BYTES: usize = 1 << 20;

/// Bytes of requests and answers that an idle connection keeps room for, each way: those under way
/// in a transfer fit. One large request would else take its size for as long as the reader stays.
pub const IDLE_BYTES: usize = 128 << 10;

/// Bytes that are copied, transformed or digested together while they are in the first cache; a
/// multiple of every element's size.
pub const CHUNK_BYTES: usize = 8 << 10;

/// How often a reader asks a source that is being filled what it has, while nothing is known to be there.
pub const LOOK_PERIOD: Duration = Duration::from_millis(10);

/// Bytes of memory that are taken together to make others of them: so few that a CPU fetches the next ones
/// while it works on these. FP8 codes of chunks of 8 KiB take a quarter longer (Zen 3).
pub const TAKEN_BYTES: usize = 1 << 10;

/// Ranges in one system call: the kernel's own limit (`UIO_MAXIOV`).
pub const MAX_RANGES: usize = 1_024;

/// Threads of one transfer.
pub const MAX_THREADS: usize = 64;

/// How long a stream may rest between two transfers. Those of one update of the weights follow
/// each other within seconds; until the next update a stream would only take a place at the source.
pub const STREAM_REST: Duration = Duration::from_secs(30);

/// Idle streams that a peer keeps for the next transfer.
pub const MAX_IDLE_STREAMS: usize = 16;

/// Descriptions of exports that a peer remembers; old ones are asked for again.
pub const MAX_DESCRIPTIONS: usize = 64;
