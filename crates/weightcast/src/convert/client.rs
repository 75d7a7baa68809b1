//! Frames from a session to the server.

use weightcast_protocol::limits::DETAIL_CHARS;
use weightcast_protocol::message::{
    Announcement, Call, ClientMessage, EpochPolicy, Holding, Location, Open, ReadFailure,
    Registration, Role,
};
use weightcast_protocol::{Attempt, ExportId, Generation, Nonce, OpSeq, SessionId, Span};

use super::condition::{condition, condition_frame};
use super::ticket::{ticket, ticket_frame};
use super::values::{selector, selector_frame, sums, sums_frame, version, version_frame};
use super::{MalformedMessage, content_digest, need};
use crate::wire;
use crate::wire::client_frame::Body;

/// Frame to message.
pub(crate) fn client_message(frame: wire::ClientFrame) -> Result<ClientMessage, MalformedMessage> {
    Ok(match need(frame.body, "empty frame")? {
        Body::Open(m) => ClientMessage::Open(open(m)?),
        Body::Announce(m) => ClientMessage::Announce(announcement(m)?),
        Body::Call(m) => ClientMessage::Call {
            seq: OpSeq(m.seq),
            deadline: Span(m.deadline_ns),
            call: call(need(m.call, "call")?)?,
        },
        Body::Sealed(m) => {
            ClientMessage::Sealed { generation: Generation(m.generation), sums: sums(m.sums)? }
        }
        Body::Filling(m) => ClientMessage::Filling {
            seq: OpSeq(m.seq),
            since: Attempt(m.since),
            generation: Generation(m.generation),
        },
        Body::Prepared(m) => ClientMessage::Prepared {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            generation: Generation(m.generation),
            sums: sums(m.sums)?,
        },
        Body::Installed(m) => ClientMessage::Installed {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            generation: Generation(m.generation),
        },
        Body::ReadFailed(m) => ClientMessage::ReadFailed {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            failure: failure(need(m.failure, "failure")?),
        },
        Body::OffloadFailed(m) => ClientMessage::OffloadFailed {
            version: version(m.version)?,
            generation: Generation(m.generation),
            reason: m.reason,
        },
        Body::SeedFailed(m) => ClientMessage::SeedFailed { ask: m.ask },
        Body::Slow(m) => ClientMessage::Slow {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            shard: m.shard,
            bytes_per_s: m.bytes_per_s,
        },
        Body::Proof(m) => ClientMessage::Proof {
            generation: Generation(m.generation),
            nonce: Nonce(m.nonce),
            sum: m.sum,
        },
        Body::Heartbeat(wire::Heartbeat { sent_at, progress }) => match progress {
            None => ClientMessage::Heartbeat { sent_at },
            Some(m) => ClientMessage::Progress {
                sent_at,
                seq: OpSeq(m.seq),
                attempt: Attempt(m.attempt),
                arrived: m.arrived,
                total: m.total,
            },
        },
        Body::Close(m) => ClientMessage::Close { deadline: Span(m.deadline_ns) },
    })
}

/// Message to frame.
pub(crate) fn client_frame(message: ClientMessage) -> wire::ClientFrame {
    let body = match message {
        ClientMessage::Open(m) => Body::Open(open_frame(m)),
        ClientMessage::Announce(m) => Body::Announce(announcement_frame(m)),
        ClientMessage::Call { seq, deadline, call } => Body::Call(wire::Call {
            seq: seq.0,
            deadline_ns: deadline.0,
            call: Some(call_frame(call)),
        }),
        ClientMessage::Sealed { generation, sums } => {
            Body::Sealed(wire::Sealed { generation: generation.0, sums: sums_frame(sums) })
        }
        ClientMessage::Filling { seq, since, generation } => {
            Body::Filling(wire::Filling { seq: seq.0, since: since.0, generation: generation.0 })
        }
        ClientMessage::Prepared { seq, attempt, generation, sums } => {
            Body::Prepared(wire::Prepared {
                seq: seq.0,
                attempt: attempt.0,
                generation: generation.0,
                sums: sums_frame(sums),
            })
        }
        ClientMessage::Installed { seq, attempt, generation } => Body::Installed(wire::Installed {
            seq: seq.0,
            attempt: attempt.0,
            generation: generation.0,
        }),
        ClientMessage::ReadFailed { seq, attempt, failure } => Body::ReadFailed(wire::ReadFailed {
            seq: seq.0,
            attempt: attempt.0,
            failure: Some(failure_frame(failure)),
        }),
        ClientMessage::OffloadFailed { version, generation, reason } => {
            Body::OffloadFailed(wire::OffloadFailed {
                version: Some(version_frame(version)),
                generation: generation.0,
                reason: said(reason),
            })
        }
        ClientMessage::SeedFailed { ask } => Body::SeedFailed(wire::SeedFailed { ask }),
        ClientMessage::Slow { seq, attempt, shard, bytes_per_s } => {
            Body::Slow(wire::Slow { seq: seq.0, attempt: attempt.0, shard, bytes_per_s })
        }
        ClientMessage::Proof { generation, nonce, sum } => {
            Body::Proof(wire::Proof { generation: generation.0, nonce: nonce.0, sum })
        }
        ClientMessage::Heartbeat { sent_at } => {
            Body::Heartbeat(wire::Heartbeat { sent_at, progress: None })
        }
        ClientMessage::Progress { sent_at, seq, attempt, arrived, total } => {
            let (seq, attempt) = (seq.0, attempt.0);
            let progress = Some(wire::ProgressReport { seq, attempt, arrived, total });
            Body::Heartbeat(wire::Heartbeat { sent_at, progress })
        }
        ClientMessage::Close { deadline } => Body::Close(wire::Close { deadline_ns: deadline.0 }),
    };
    wire::ClientFrame { body: Some(body) }
}

fn open(m: wire::Open) -> Result<Open, MalformedMessage> {
    let session = m.session.as_slice().try_into();
    Ok(Open {
        protocol: m.protocol,
        session: SessionId(u128::from_le_bytes(
            session.map_err(|_| MalformedMessage("a session is not 16 bytes"))?,
        )),
        role: match m.role() {
            wire::Role::Trainer => Role::Trainer,
            wire::Role::Rollout => Role::Rollout,
            wire::Role::Offload => Role::Offload(version(m.offload)?),
            wire::Role::Seed => Role::Seed(version(m.offload)?),
            wire::Role::Unspecified => return Err(MalformedMessage("role")),
        },
        ticket: m.ticket.map(ticket).transpose()?,
        rejoins: m.rejoins,
        model: m.model,
        replica: m.replica,
        shard: m.shard,
        num_shards: m.num_shards,
        epoch: if m.new_epoch { EpochPolicy::New } else { EpochPolicy::Current },
        retain: m.retain,
        offload_seeding: m.offload_seeding,
        location: Location { datacentre: m.datacentre, host: m.host, spot: m.spot },
        data_address: m.data_address,
        activate: m.activate,
    })
}

fn open_frame(m: Open) -> wire::Open {
    wire::Open {
        protocol: m.protocol,
        session: m.session.0.to_le_bytes().to_vec(),
        ticket: m.ticket.map(ticket_frame),
        rejoins: m.rejoins,
        model: m.model,
        replica: m.replica,
        shard: m.shard,
        num_shards: m.num_shards,
        role: match m.role {
            Role::Trainer => wire::Role::Trainer,
            Role::Rollout => wire::Role::Rollout,
            Role::Offload(_) => wire::Role::Offload,
            Role::Seed(_) => wire::Role::Seed,
        } as i32,
        offload: match m.role {
            Role::Offload(version) | Role::Seed(version) => Some(version_frame(version)),
            Role::Trainer | Role::Rollout => None,
        },
        retain: m.retain,
        offload_seeding: m.offload_seeding,
        new_epoch: m.epoch == EpochPolicy::New,
        datacentre: m.location.datacentre,
        host: m.location.host,
        spot: m.location.spot,
        data_address: m.data_address,
        activate: m.activate,
    }
}

fn announcement(m: wire::Announce) -> Result<Announcement, MalformedMessage> {
    let registration = |m: wire::Register| -> Result<Registration, MalformedMessage> {
        Ok(Registration {
            layout: content_digest(&m.layout)?,
            export: ExportId(m.export),
            bytes: m.bytes,
        })
    };
    let holding = |m: wire::Holding| -> Result<Holding, MalformedMessage> {
        Ok(Holding {
            version: version(m.version)?,
            catalog: content_digest(&m.catalog)?,
            sums: m.sums.map(|m| sums(Some(m))).transpose()?,
            refused: m.refused,
            withdrawn: m.withdrawn,
        })
    };
    Ok(Announcement {
        answered: OpSeq(m.answered),
        generation: Generation(m.generation),
        registration: m.registration.map(registration).transpose()?,
        held: m.held.map(holding).transpose()?,
        retains: m.retains.into_iter().map(|m| version(Some(m))).collect::<Result<_, _>>()?,
    })
}

fn announcement_frame(m: Announcement) -> wire::Announce {
    wire::Announce {
        answered: m.answered.0,
        generation: m.generation.0,
        registration: m.registration.map(|m| wire::Register {
            layout: m.layout.0.to_vec(),
            export: m.export.0,
            bytes: m.bytes,
        }),
        held: m.held.map(|m| wire::Holding {
            version: Some(version_frame(m.version)),
            catalog: m.catalog.0.to_vec(),
            sums: m.sums.and_then(sums_frame),
            refused: m.refused,
            withdrawn: m.withdrawn,
        }),
        retains: m.retains.into_iter().map(version_frame).collect(),
    }
}

fn call(call: wire::call::Call) -> Result<Call, MalformedMessage> {
    use wire::call::Call as W;
    Ok(match call {
        W::Register(m) => Call::Register {
            layout: content_digest(&m.layout)?,
            export: ExportId(m.export),
            bytes: m.bytes,
        },
        W::Unregister(_) => Call::Unregister,
        W::Publish(m) => Call::Publish {
            version: m.version,
            catalog: content_digest(&m.catalog)?,
            generation: Generation(m.generation),
        },
        W::Unpublish(_) => Call::Unpublish,
        W::Replicate(m) => Call::Replicate { selector: selector(m.selector)? },
        W::Update(m) => Call::Update {
            selector: selector(m.selector)?,
            allow_rollback: m.allow_rollback,
            staged: m.staged,
        },
        W::Describe(m) => Call::Describe { selector: selector(m.selector)? },
        W::Retain(m) => Call::Retain { selector: selector(m.selector)? },
        W::LetGo(m) => Call::LetGo { version: m.version },
        W::List(_) => Call::List,
        W::Wait(m) => Call::Wait { until: condition(need(m.until, "condition")?)? },
        W::Decline(m) => Call::Decline { detail: m.detail },
    })
}

fn call_frame(call: Call) -> wire::call::Call {
    use wire::call::Call as W;
    match call {
        Call::Register { layout, export, bytes } => {
            W::Register(wire::Register { layout: layout.0.to_vec(), export: export.0, bytes })
        }
        Call::Unregister => W::Unregister(wire::Unregister {}),
        Call::Publish { version, catalog, generation } => W::Publish(wire::Publish {
            version,
            catalog: catalog.0.to_vec(),
            generation: generation.0,
        }),
        Call::Unpublish => W::Unpublish(wire::Unpublish {}),
        Call::Replicate { selector } => {
            W::Replicate(wire::Replicate { selector: selector_frame(selector) })
        }
        Call::Update { selector, allow_rollback, staged } => {
            W::Update(wire::Update { selector: selector_frame(selector), allow_rollback, staged })
        }
        Call::Describe { selector } => {
            W::Describe(wire::Describe { selector: selector_frame(selector) })
        }
        Call::Retain { selector } => W::Retain(wire::Retain { selector: selector_frame(selector) }),
        Call::LetGo { version } => W::LetGo(wire::LetGo { version }),
        Call::List => W::List(wire::List {}),
        Call::Wait { until } => W::Wait(wire::Wait { until: Some(condition_frame(until)) }),
        Call::Decline { detail } => W::Decline(wire::Decline { detail: said(detail) }),
    }
}

/// Cuts a reason to what a frame has room for.
fn said(reason: String) -> String {
    match reason.char_indices().nth(DETAIL_CHARS) {
        Some((end, _)) => reason[..end].to_owned(),
        None => reason,
    }
}

fn failure(failure: wire::read_failed::Failure) -> ReadFailure {
    use wire::read_failed::Failure as W;
    match failure {
        W::Source(m) => ReadFailure::Source { shard: m.shard, reason: m.reason },
        W::Layout(m) => ReadFailure::Layout { detail: m.detail },
    }
}

fn failure_frame(failure: ReadFailure) -> wire::read_failed::Failure {
    use wire::read_failed::Failure as W;
    match failure {
        ReadFailure::Source { shard, reason } => {
            W::Source(wire::SourceFailure { shard, reason: said(reason) })
        }
        ReadFailure::Layout { detail } => W::Layout(wire::LayoutFailure { detail: said(detail) }),
    }
}
