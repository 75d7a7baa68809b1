//! Call errors, field by field.

use weightcast_protocol::{CallError, OpSeq};

use super::values::{selector, selector_frame, version, version_frame};
use super::{MalformedMessage, need};
use crate::wire;
use crate::wire::error::Error as W;

pub(super) fn error(error: Option<wire::Error>) -> Result<CallError, MalformedMessage> {
    Ok(match need(need(error, "error")?.error, "error kind")? {
        W::VersionUnavailable(m) => CallError::VersionUnavailable {
            model: m.model,
            selector: selector(m.selector)?,
            latest: m.latest.map(|v| version(Some(v))).transpose()?,
        },
        W::SourceLost(m) => CallError::SourceLost {
            version: version(m.version)?,
            source_replica: m.source_replica,
            reason: m.reason,
        },
        W::DigestMismatch(m) => CallError::DigestMismatch {
            version: version(m.version)?,
            source_replica: m.source_replica,
            detail: m.detail,
        },
        W::ContentMismatch(m) => CallError::ContentMismatch {
            version: version(m.version)?,
            replica: m.replica,
            detail: m.detail,
        },
        W::LayoutMismatch(m) => CallError::LayoutMismatch { replica: m.replica, detail: m.detail },
        W::GroupDiverged(m) => CallError::GroupDiverged {
            replica: m.replica,
            seq: OpSeq(m.seq),
            shard_a: m.shard_a,
            call_a: m.call_a,
            shard_b: m.shard_b,
            call_b: m.call_b,
        },
        W::GroupBroken(m) => CallError::GroupBroken { replica: m.replica, reason: m.reason },
        W::Timeout(m) => {
            CallError::Timeout { call: m.call, waiting_for: m.waiting_for, detail: m.detail }
        }
        W::ServerUnreachable(m) => {
            CallError::ServerUnreachable { server: m.server, reason: m.reason }
        }
        W::InDoubt(m) => CallError::InDoubt { version: version(Some(m))? },
        W::Limit(m) => CallError::Limit { what: m.what, limit: m.limit, got: m.got },
        W::Misuse(m) => CallError::Misuse { detail: m.detail },
    })
}

pub(super) fn error_frame(error: CallError) -> Option<wire::Error> {
    let error = match error {
        CallError::VersionUnavailable { model, selector, latest } => {
            W::VersionUnavailable(wire::VersionUnavailable {
                model,
                selector: selector_frame(selector),
                latest: latest.map(version_frame),
            })
        }
        CallError::SourceLost { version, source_replica, reason } => {
            W::SourceLost(wire::SourceLost {
                version: Some(version_frame(version)),
                source_replica,
                reason,
            })
        }
        CallError::DigestMismatch { version, source_replica, detail } => {
            W::DigestMismatch(wire::DigestMismatch {
                version: Some(version_frame(version)),
                source_replica,
                detail,
            })
        }
        CallError::ContentMismatch { version, replica, detail } => {
            W::ContentMismatch(wire::ContentMismatch {
                version: Some(version_frame(version)),
                replica,
                detail,
            })
        }
        CallError::LayoutMismatch { replica, detail } => {
            W::LayoutMismatch(wire::LayoutMismatch { replica, detail })
        }
        CallError::GroupDiverged { replica, seq, shard_a, call_a, shard_b, call_b } => {
            let seq = seq.0;
            W::GroupDiverged(wire::GroupDiverged { replica, seq, shard_a, call_a, shard_b, call_b })
        }
        CallError::GroupBroken { replica, reason } => {
            W::GroupBroken(wire::GroupBroken { replica, reason })
        }
        CallError::Timeout { call, waiting_for, detail } => {
            W::Timeout(wire::Timeout { call, waiting_for, detail })
        }
        CallError::ServerUnreachable { server, reason } => {
            W::ServerUnreachable(wire::ServerUnreachable { server, reason })
        }
        CallError::InDoubt { version } => W::InDoubt(version_frame(version)),
        CallError::Limit { what, limit, got } => W::Limit(wire::Limit { what, limit, got }),
        CallError::Misuse { detail } => W::Misuse(wire::Misuse { detail }),
    };
    Some(wire::Error { error: Some(error) })
}
