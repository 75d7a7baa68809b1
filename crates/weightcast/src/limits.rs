//! Bounds of the runtime, each with its reason. Those of the protocol are in its own crate.

use std::time::Duration;

/// One frame of the control plane: a page and what is around it. An idle peer costs as much, in
/// each direction of its stream.
pub(crate) const FRAME_BYTES: usize = PAGE_BYTES + (16 << 10);
/// One page of whatever can grow: manifests, replies, the large field of a message.
pub(crate) const PAGE_BYTES: usize = 64 << 10;
/// One frame of a session: five names of 512 bytes, or a reason of 4,096 characters.
pub(crate) const CLIENT_FRAME_BYTES: usize = 24 << 10;
/// One message of the server in pages. The largest that the protocol's limits allow is a listing of
/// 16,384 replicas of one shard, each with a name of 512 bytes and a version of its own: 9 MB. A
/// source of 4,096 shards with addresses of 512 bytes has 2.3 MB.
pub(crate) const MESSAGE_BYTES: usize = 16 << 20;
/// One status: of 16,384 sessions, each with the longest names, 64 MB.
pub(crate) const STATUS_BYTES: usize = 128 << 20;
/// Bytes that wait for one session: one message of any size, or many of the usual 100 bytes. A
/// session for which more would wait is cut off, and comes back on a new connection.
pub(crate) const OUTBOX_BYTES: usize = MESSAGE_BYTES;
/// Bytes that wait for all sessions together, fields that they share counted once: 16,384 sessions
/// with 4 KB each (four groups of 4,096 shards that were just assigned a source have 10 MB), and a
/// dozen of the largest messages. Beyond that, the session for which most waits is cut off.
pub(crate) const OUTBOXES_BYTES: usize = 256 << 20;
/// The largest manifest that does not wait for larger ones: 4,096 shards of a large model have 300
/// KB each.
pub(crate) const SMALL_MANIFEST_BYTES: usize = 1 << 20;
/// Small manifests on their way in, all together, each with what its stream may hold unread
/// ([`STREAM_WINDOW`]); counted before they are read. If 4,096 shards register at once, 115
/// manifests are under way and the others wait for their turn.
pub(crate) const SMALL_UPLOADS_BYTES: usize = 64 << 20;
/// Larger manifests on their way in, counted in the same way: two of the largest.
pub(crate) const LARGE_UPLOADS_BYTES: usize = 192 << 20;
/// Manifests of each kind that wait for their turn, each with the unread bytes of its stream: 128
/// MiB. Beyond that, the newest of the origin with the most is told to come again.
pub(crate) const WAITING_UPLOADS: usize = 512;
/// Bytes on their way to one reader: a page that waits, a page that is made, and the 400 KiB that
/// HTTP/2 takes before the socket does.
pub(crate) const SENDING_BYTES: usize = 512 << 10;
/// Stored manifests on their way out, to 256 readers at a time; others wait.
pub(crate) const READERS_BYTES: usize = 256 * SENDING_BYTES;
/// Replies about one replica, each counted as the largest until it is made: four at a time, some
/// thousands of the usual size. Others wait.
pub(crate) const INSPECTIONS_BYTES: usize = 4 * (MESSAGE_BYTES + SENDING_BYTES);
/// Statuses, counted in the same way: one is made while as much is sent.
pub(crate) const STATUSES_BYTES: usize = 2 * (STATUS_BYTES + SENDING_BYTES);
/// Requests for a recording that wait for the one that is written. More would only get the same events.
pub(crate) const WAITING_RECORDINGS: usize = 4;
/// Requests of each kind that wait for room for a reply: one of each session. They hold nothing.
pub(crate) const WAITING_REPLIES: usize = 16_384;
/// Manifests and replies on their way on one connection, each way. A client sends and fetches one
/// after another.
pub(crate) const TRANSFERS: usize = 2;
/// How long a manifest or a reply may take: this, and the time that the bytes so far take at
/// [`TRANSFER_RATE`]. A transfer that never moves is gone after this. Waiting for a turn does not
/// count.
pub(crate) const TRANSFER_PATIENCE: Duration = Duration::from_secs(5);
/// The slowest transfer that is waited for, in bytes a second: far below any network that moves
/// weights.
pub(crate) const TRANSFER_RATE: u64 = 1 << 20;
/// HTTP/2 windows: what a peer may send before it is read, on one request and on a connection. At
/// 50 ms a round trip 5 MB/s; two requests that wait for their turn leave room for the session.
pub(crate) const STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 20;
/// One manifest: 200,000 tensors at 300 bytes.
pub(crate) const MANIFEST_BYTES: usize = 64 << 20;
/// Plans kept by one handle: a trainer's layout, a few of its peers'.
pub(crate) const CACHED_PLANS: usize = 8;
/// Most plans in a directory, of which the newest stay: enough for all ranks of a host and a few
/// jobs. At a few bytes a copy, some 2 MB each for the largest models.
pub(crate) const STORED_PLANS: usize = 128;
/// One stored plan: as many copies as a plan may have, at the bytes that one takes.
pub(crate) const STORED_PLAN_BYTES: u64 = 128 << 20;
/// Data ports that one handle stays connected to: as many as a large source has shards. Rollouts
/// that came and went must not add up.
pub(crate) const CACHED_PEERS: usize = 1_024;
/// Digests that one handle remembers of the slices that it has read: those of 48 shards of the largest
/// models (139,583 tensors), some 300 MB. Of a larger source nothing is remembered, and all of its
/// next version is moved unless the layouts are equal.
pub(crate) const KNOWN_DIGESTS: usize = 48 * 139_583;
/// Longest wait of a read for the digests of its source.
pub(crate) const NOTE_PATIENCE: Duration = Duration::from_secs(10);
/// Shards of a replica that is pushed to, or whose plan a push executes: their layouts are named in one word.
pub(crate) const PUSH_SHARDS: usize = 1_024;
/// Parcels of one target: all of them are named in one word.
pub(crate) const PUSH_PARCELS: usize = 2_048;
/// Plans that one handle keeps for targets that others registered: one for each shard of a few engines' layouts.
pub(crate) const PUSH_PLANS: usize = 16;
/// Data ports to which words of pushes are under way from one handle: each has a thread. Words to others are lost, and
/// come again.
pub(crate) const PUSH_LINES: usize = 256;
/// Words that wait for one data port, the newest; earlier ones are lost, and come again.
pub(crate) const PUSH_WORDS: usize = 256;
/// Words that wait for one machine of a push.
pub(crate) const PUSH_EVENTS: usize = 8_192;
/// Grants that one handle writes under at a time: each write has threads of its own.
pub(crate) const PUSH_WRITERS: usize = 4;

/// Layouts of other shards kept by one handle: enough for two large sources.
pub(crate) const CACHED_LAYOUTS: usize = 8_192;
/// Bytes that these layouts may take together. One layout of the largest models (139,583 tensors)
/// takes 21 MB, so those of 48 shards stay; others are fetched again for the next read. A
/// stranger's manifest of 64 MiB takes at most twice that.
pub(crate) const CACHED_LAYOUT_BYTES: usize = 1 << 30;
/// Recordings that stay in a directory, of each machine and cause: the newest.
pub(crate) const KEPT_RECORDINGS: usize = 16;
/// What they may take together: two of the largest. The usual one has a megabyte.
pub(crate) const KEPT_RECORDINGS_BYTES: u64 = 256 << 20;
/// Connections to the control port that have not shown the token yet. Each costs a file descriptor
/// and some 50 KB, in a process that may be a trainer's; an honest client needs its place for one
/// round trip. Beyond that, the origin with the most of them loses its oldest.
pub(crate) const STRANGERS: usize = 256;
/// How long such a connection may take: a client sends its first request with the first packet.
pub(crate) const STRANGER_DEADLINE: Duration = Duration::from_secs(5);
/// Connections to the control port that have shown the token: one for each of 16,384 sessions, and
/// one more while a client that lost the first connects again.
pub(crate) const CONNECTIONS: usize = 32_768;
/// Requests under way on one connection: a session's stream, a few that come and go.
pub(crate) const REQUESTS: u32 = 16;
/// Connections that a server makes at a time because a client wants to know whether its port can be reached.
pub(crate) const DIALS: usize = 16;
/// How long one of them may take: a port of the same network answers in a round trip.
pub(crate) const DIAL: Duration = Duration::from_secs(2);
/// Headers of one request: a token and what gRPC adds.
pub(crate) const HEADER_BYTES: u32 = 8 << 10;
/// Connections to the metrics port: a few Prometheus servers, and people. Each lasts at most
/// [`STRANGER_DEADLINE`]. The largest text, of 64 models with the longest names in every state, has
/// 5 MB.
pub(crate) const SCRAPERS: usize = 16;
/// Log lines that wait for another language's logging: beyond, new lines are dropped and counted.
pub(crate) const LOG_LINES: usize = 1_024;
/// Spans that wait for the collector: some 200 updates, and 2 MB. Beyond, new ones are dropped and counted.
pub(crate) const WAITING_SPANS: usize = 2_048;
/// Spans of one message to a collector: half a MB, of the 4 MiB that collectors take by default.
pub(crate) const SENT_SPANS: usize = 512;
/// How long a span waits for others to be sent with.
pub(crate) const SPANS_EVERY: Duration = Duration::from_secs(1);
/// How long a collector may take for one message; OpenTelemetry's own libraries wait as long.
pub(crate) const COLLECTOR_PATIENCE: Duration = Duration::from_secs(10);
/// How long the end of a handle or a server may be held up by spans on their way to a collector.
pub(crate) const FLUSH: Duration = Duration::from_secs(2);
/// Path of a Unix socket: `sun_path` has 108 bytes, the last one is zero.
pub(crate) const SOCKET_PATH_BYTES: usize = 107;
/// A token: 256 bits in hexadecimal have 64; it is one of the headers.
pub(crate) const TOKEN_BYTES: u64 = 1 << 10;

/// How many windows of its tensors a group is asked to show. A group that lacks a tenth of the
/// bytes passes with a chance of 1 in 800.
pub(crate) const PROOF_WINDOWS: u64 = 64;
/// Bytes of one window: 4 MiB together, which a worker sums in some milliseconds beside its work.
pub(crate) const PROOF_WINDOW: u64 = 64 << 10;
