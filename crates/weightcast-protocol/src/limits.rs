//! Every bound of the protocol, with its reason.

use serde::{Deserialize, Serialize};

use crate::{CallError, Span};

/// Bytes of a model, replica, host or datacentre name.
pub const NAME_BYTES: usize = 512;

/// Characters of a reason that one shard gives to the others of its group: about a page.
pub const DETAIL_CHARS: usize = 4_096;

/// Length of the window in which a read's pace is measured. A short stall does not show in it.
pub const PACE_WINDOW: Span = Span::from_secs(2);

/// Pace below which a read is slow, in bytes a second. Every link between hosts of a cluster gives
/// more.
pub const SLOW_PACE: u64 = 16 << 20;

/// A slow read that would end within this time stays at its source: a change costs about as much.
pub const SLOW_PATIENCE: Span = Span::from_secs(5);

/// How often a shard that reads tells its progress: often enough for a person who looks, and at most
/// twice as often as heartbeats.
pub const PROGRESS_EVERY: Span = Span::from_secs(1);

/// The shortest time over which the server reckons how fast a shard reads.
pub const RATE_WINDOW: Span = Span::from_secs(2);

/// How often one transfer leaves a slow source, so that readers do not wander without end.
pub const MOVES: u32 = 8;

/// How many rollouts that have left a `wait` names when it times out, so that the message stays
/// short.
pub const DEPARTED: usize = 4;

/// How many grants a sender of a push keeps at once: a few for each of a thousand targets.
pub const PUSH_TASKS: usize = 4_096;

/// How long a routing lease counts without another notice: an engine that has died gets requests for so long at most.
pub const ROUTING_LEASE: Span = Span::from_secs(5);

/// Engines of a model that have routing leases at once.
pub const ROUTED_ENGINES: usize = 4_096;

/// Workers of an engine that has a routing lease: more than any engine has.
pub const ROUTED_WORKERS: u32 = 4_096;

/// Versions that are kept for one group by [`Call::Retain`](crate::message::Call::Retain): more than an evaluation compares.
pub const RETAINED: usize = 64;

/// Bound on the steps of one event, for a server without groups (T5).
pub const SETTLING_ROUNDS: usize = 1_000;

/// Further steps for each group: each is looked at a few times, and once more for each group that
/// goes before it.
pub const SETTLING_ROUNDS_PER_GROUP: usize = 1_000;

/// How much of a machine's past one reel of its recorder holds. Two are kept, so the past is between one and two of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReelLimits {
    /// Bytes of events, from which on the next reel begins.
    pub bytes: usize,
    /// Time from which on the next reel begins.
    pub span: Span,
}

/// A server's: half a million events of 32 bytes. That is five minutes of 1,000 sessions; a server under full load has
/// half a minute.
pub const SERVER_REEL: ReelLimits = ReelLimits { bytes: 16 << 20, span: Span::from_secs(300) };

/// A session's: with a heartbeat a second and some calls, hours. There may be many in one process.
pub const SESSION_REEL: ReelLimits = ReelLimits { bytes: 2 << 20, span: Span::from_secs(300) };

/// The most bytes of a machine's state with which a reel may begin: encoding it keeps the machine from its work, for some
/// tens of milliseconds. A server of 16,384 sessions has a tenth.
pub const IMAGE_BYTES: usize = 64 << 20;

/// The most bytes of a recording: an image, two reels, and what their last entries are beyond the bound.
pub const RECORDING_BYTES: usize = IMAGE_BYTES + 3 * SERVER_REEL.bytes;

/// Bounds that a server enforces. Each can be configured; the defaults serve 16,384 workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Sessions open at once: one per worker of all jobs that use this server.
    pub sessions: usize,
    /// Models with groups: each costs a history of versions.
    pub models: usize,
    /// Shards of one group: the largest model-parallel group, with room.
    pub shards_per_group: u32,
    /// Calls by which one shard may run ahead of the slowest of its group: each call keeps an
    /// answer.
    pub calls_ahead: usize,
    /// Versions of a model whose content is remembered, so that no version can be published twice
    /// with different content (S7). Older versions can't be published any more.
    pub versions: usize,
    /// Shards of all sources of one reader together. Each shard of the reader is told of all of
    /// them, so this bounds the largest message. One source always fits.
    pub source_shards: u32,
    /// Sources of one reader at once: each assignment has their names.
    pub sources: u32,
    /// Bytes of one manifest: 200,000 tensors of about 300 bytes.
    pub manifest_bytes: usize,
    /// Manifests kept, one for each different shard layout. Two for each session: the registered
    /// layout, and the next one. Manifests without references make room.
    pub manifests: usize,
    /// Bytes of all manifests together.
    pub manifests_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            sessions: 16_384,
            models: 1_024,
            shards_per_group: 4_096,
            calls_ahead: 1_024,
            source_shards: 4_096,
            sources: 64,
            versions: 65_536,
            manifest_bytes: 64 << 20,
            manifests: 32_768,
            manifests_bytes: 2 << 30,
        }
    }
}

impl Limits {
    /// An error if `got` is more than `limit`.
    pub(crate) fn check(what: &str, got: u64, limit: u64) -> Result<(), CallError> {
        if got <= limit {
            return Ok(());
        }
        Err(CallError::Limit { what: what.to_owned(), limit, got })
    }
}

/// Checks a name: 1 to [`NAME_BYTES`] of `[A-Za-z0-9._/:-]`, no leading `/`, no `..`.
///
/// Errors: `Limit` if the name is too long, otherwise `Misuse`, which says what is wrong.
pub fn check_name(what: &str, name: &str) -> Result<(), CallError> {
    Limits::check(&format!("length of the {what} name"), name.len() as u64, NAME_BYTES as u64)?;
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._/:-".contains(c);
    let wrong = if name.is_empty() {
        "is empty"
    } else if name.starts_with('/') {
        "starts with /"
    } else if name.contains("..") {
        "contains .."
    } else if !name.chars().all(allowed) {
        "has characters other than A-Z a-z 0-9 . _ / : -"
    } else {
        return Ok(());
    };
    Err(CallError::Misuse { detail: format!("the {what} name {name:?} {wrong}; choose another") })
}

/// Checks a label (host, datacentre, address): at most [`NAME_BYTES`] visible ASCII characters, or
/// none.
pub fn check_label(what: &str, label: &str) -> Result<(), CallError> {
    Limits::check(&format!("length of the {what}"), label.len() as u64, NAME_BYTES as u64)?;
    if label.chars().all(|c| c.is_ascii_graphic()) {
        return Ok(());
    }
    Err(CallError::Misuse { detail: format!("the {what} {label:?} has unprintable characters") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_at_the_limit() {
        assert_eq!(check_name("model", &"a".repeat(NAME_BYTES)), Ok(()));
        assert!(matches!(
            check_name("model", &"a".repeat(NAME_BYTES + 1)),
            Err(CallError::Limit { limit: 512, got: 513, .. })
        ));
    }

    #[test]
    fn names_that_could_be_paths_or_markup_are_refused() {
        for name in ["", "/etc", "a/../b", "a b", "a\0", "ü"] {
            assert!(matches!(check_name("model", name), Err(CallError::Misuse { .. })), "{name}");
        }
        assert_eq!(check_name("model", "policy/v1.2:a_b-C"), Ok(()));
    }

    #[test]
    fn every_character_of_a_name_is_allowed_or_not() {
        for character in (0..=255u8).map(char::from).chain(['ß', '語']) {
            let allowed = match character {
                'a'..='z' | 'A'..='Z' | '0'..='9' => true,
                other => ['.', '_', '/', ':', '-'].contains(&other),
            };
            let is_misuse =
                |name: &str| matches!(check_name("model", name), Err(CallError::Misuse { .. }));
            for name in [format!("a{character}"), format!("a{character}b")] {
                assert_eq!(is_misuse(&name), !allowed, "{name:?}");
            }
            let first = character.to_string();
            assert_eq!(is_misuse(&first), !allowed || character == '/', "{first:?}");
        }
        assert_eq!(check_name("model", "a.b.c"), Ok(()), "only two dots together lead out");
        let detail = "the model name \"a b\" has characters other than A-Z a-z 0-9 . _ / : -; \
                      choose another";
        let expected = Err(CallError::Misuse { detail: detail.to_owned() });
        assert_eq!(check_name("model", "a b"), expected);
    }

    #[test]
    fn labels_are_printable_and_may_be_empty() {
        for label in ["", "[::1]:80", "eu/west <2>", "a\tb", "a\n", "\u{7f}", "ü", "!~"] {
            let printable = label.bytes().all(|byte| (b'!'..=b'~').contains(&byte));
            let checked = check_label("host", label);
            assert_eq!(checked.is_ok(), printable, "{label:?}");
            assert!(printable || matches!(checked, Err(CallError::Misuse { .. })));
        }
        assert_eq!(check_label("host", &"h".repeat(NAME_BYTES)), Ok(()));
        let what = "length of the host".to_owned();
        let long = check_label("host", &"h".repeat(NAME_BYTES + 1));
        assert_eq!(long, Err(CallError::Limit { what, limit: 512, got: 513 }));
    }

    #[test]
    fn a_limit_is_the_last_that_is_allowed() {
        for (got, limit) in [(0, 0), (6, 7), (7, 7), (8, 7), (1, 0), (u64::MAX, u64::MAX)] {
            let what = || "number of shards".to_owned();
            let expected = match got > limit {
                true => Err(CallError::Limit { what: what(), limit, got }),
                false => Ok(()),
            };
            assert_eq!(Limits::check(&what(), got, limit), expected);
        }
    }

    /// Users are told these numbers, so the documents have to change with them.
    #[test]
    fn the_bounds_serve_as_many_workers_as_is_said() {
        let limits = Limits::default();
        let workers = 16_384;
        assert_eq!(limits.sessions, workers);
        assert_eq!(limits.manifests, 2 * workers, "what each has, and what it will have");
        assert_eq!(limits.shards_per_group, 4_096);
        assert_eq!(limits.source_shards, limits.shards_per_group, "one source always fits");
        assert_eq!((limits.models, limits.calls_ahead, limits.sources), (1_024, 1_024, 64));
        assert_eq!(limits.versions, 65_536);
        assert_eq!(limits.manifest_bytes, 64 * 1_024 * 1_024);
        assert_eq!(limits.manifests_bytes, 2 * 1_024 * 1_024 * 1_024);
        assert_eq!((NAME_BYTES, DETAIL_CHARS, DEPARTED, MOVES), (512, 4_096, 4, 8));
        assert_eq!((PACE_WINDOW, SLOW_PATIENCE), (Span(2_000_000_000), Span(5_000_000_000)));
        assert_eq!((PROGRESS_EVERY, RATE_WINDOW), (Span(1_000_000_000), Span(2_000_000_000)));
        assert_eq!(SLOW_PACE, 16 * 1_024 * 1_024);
    }
}
