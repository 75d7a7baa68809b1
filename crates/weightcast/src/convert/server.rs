//! Frames from the server to a session.

use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use weightcast_protocol::message::{
    Answer, Assignment, Listing, ServerMessage, Sibling, SourceShard, Witnesses,
};
use weightcast_protocol::{Attempt, ContentDigest, ExportId, Generation, Nonce, OpSeq, Span};

use super::error::{error, error_frame};
use super::large::{Encoder, Field};
use super::ticket::{ticket, ticket_frame};
use super::values::{revision, version, version_frame};
use super::{MalformedMessage, content_digest, count, need};
use crate::wire;
use crate::wire::server_frame::Body;

/// The fewest bytes of a source's shard: the name of its layout, and the tags around it.
const SHARD_BYTES: usize = 20;

/// Frame to message.
pub(super) fn message(body: Body, field: &mut Field) -> Result<ServerMessage, MalformedMessage> {
    Ok(match body {
        Body::Page(_) => return Err(MalformedMessage("a page is no message")),
        Body::Opened(m) => ServerMessage::Opened {
            ticket: ticket(need(m.ticket, "ticket")?)?,
            lease: Span(m.lease_ns),
        },
        Body::Vouched(m) => ServerMessage::Vouched { ticket: ticket(need(m.ticket, "ticket")?)? },
        Body::Refused(m) => ServerMessage::Refused { error: error(m.error)?, retry: m.retry },
        Body::Assigned(m) => ServerMessage::Assigned {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            since: Attempt(m.since),
            assignment: assignment(need(m.assignment, "assignment")?, field)?,
        },
        Body::Install(m) => ServerMessage::Install {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            deadline: Span(m.deadline_ns),
        },
        Body::Answered(m) => ServerMessage::Answered {
            seq: OpSeq(m.seq),
            result: match need(m.result, "result")? {
                wire::answered::Result::Answer(a) => Ok(answer(need(a.answer, "answer")?, field)?),
                wire::answered::Result::Error(e) => Err(error(Some(e))?),
            },
        },
        Body::Challenge(m) => {
            ServerMessage::Challenge { generation: Generation(m.generation), nonce: Nonce(m.nonce) }
        }
        Body::Accepted(m) => ServerMessage::Sealed { generation: Generation(m.generation) },
        Body::Fenced(m) => ServerMessage::Fenced {
            generation: Generation(m.generation),
            error: error(m.error)?,
            witnesses: Box::new(Witnesses {
                copy: m.copy.map(witness).transpose()?,
                holder: m.holder.map(witness).transpose()?,
            }),
        },
        Body::Broken(m) => ServerMessage::Broken { error: error(m.error)? },
        Body::HeartbeatAck(m) => ServerMessage::HeartbeatAck { sent_at: m.sent_at },
        Body::Superseded(_) => ServerMessage::Superseded,
        Body::Recovered(_) => ServerMessage::Recovered,
        Body::Offload(m) => ServerMessage::Offload {
            version: version(m.version)?,
            generation: Generation(m.generation),
        },
        Body::Release(m) => ServerMessage::Release { deadline: Span(m.deadline_ns) },
        Body::Seed(m) => ServerMessage::Seed {
            version: version(m.version)?,
            ask: m.ask,
            deadline: Span(m.deadline_ns),
        },
        Body::Closed(_) => ServerMessage::Closed,
    })
}

/// Puts a large field in its place.
pub(super) type Set = fn(&mut Body, Bytes);

/// Message to frame without its large field; and the field, with the function that puts it in.
pub(super) fn message_frame(
    message: ServerMessage,
    encoder: &mut Encoder,
) -> (Body, Option<(Set, Bytes)>) {
    let mut field: Option<(Set, Bytes)> = None;
    let body = match message {
        ServerMessage::Opened { ticket, lease } => {
            Body::Opened(wire::Opened { ticket: Some(ticket_frame(ticket)), lease_ns: lease.0 })
        }
        ServerMessage::Vouched { ticket } => {
            Body::Vouched(wire::Vouched { ticket: Some(ticket_frame(ticket)) })
        }
        ServerMessage::Refused { error, retry } => {
            Body::Refused(wire::Refused { error: error_frame(error), retry })
        }
        ServerMessage::Assigned { seq, attempt, since, assignment } => {
            field = Some((set_shards, encoder.shards(Arc::clone(&assignment.shards))));
            Body::Assigned(wire::Assigned {
                seq: seq.0,
                attempt: attempt.0,
                since: since.0,
                assignment: Some(assignment_frame(assignment)),
            })
        }
        ServerMessage::Install { seq, attempt, deadline } => {
            Body::Install(wire::Install { seq: seq.0, attempt: attempt.0, deadline_ns: deadline.0 })
        }
        ServerMessage::Answered { seq, result } => Body::Answered(wire::Answered {
            seq: seq.0,
            result: match result {
                Ok(a) => {
                    let (answer, large) = answer_frame(a, encoder);
                    field = large.map(|bytes| (set_answer as Set, bytes));
                    Some(wire::answered::Result::Answer(wire::Answer { answer: Some(answer) }))
                }
                Err(e) => error_frame(e).map(wire::answered::Result::Error),
            },
        }),
        ServerMessage::Challenge { generation, nonce } => {
            Body::Challenge(wire::Challenge { generation: generation.0, nonce: nonce.0 })
        }
        ServerMessage::Sealed { generation } => {
            Body::Accepted(wire::Accepted { generation: generation.0 })
        }
        ServerMessage::Fenced { generation, error, witnesses } => Body::Fenced(wire::Fenced {
            generation: generation.0,
            error: error_frame(error),
            copy: witnesses.copy.map(witness_frame),
            holder: witnesses.holder.map(witness_frame),
        }),
        ServerMessage::Broken { error } => Body::Broken(wire::Broken { error: error_frame(error) }),
        ServerMessage::HeartbeatAck { sent_at } => {
            Body::HeartbeatAck(wire::HeartbeatAck { sent_at })
        }
        ServerMessage::Superseded => Body::Superseded(wire::Superseded {}),
        ServerMessage::Recovered => Body::Recovered(wire::Recovered {}),
        ServerMessage::Offload { version, generation } => Body::Offload(wire::Offload {
            version: Some(version_frame(version)),
            generation: generation.0,
        }),
        ServerMessage::Release { deadline } => {
            Body::Release(wire::Release { deadline_ns: deadline.0 })
        }
        ServerMessage::Seed { version, ask, deadline } => Body::Seed(wire::Seed {
            version: Some(version_frame(version)),
            ask,
            deadline_ns: deadline.0,
        }),
        ServerMessage::Closed => Body::Closed(wire::Closed {}),
    };
    (body, field)
}

fn set_shards(body: &mut Body, bytes: Bytes) {
    if let Body::Assigned(wire::Assigned { assignment: Some(assignment), .. }) = body {
        assignment.shards = bytes;
    }
}

fn set_answer(body: &mut Body, bytes: Bytes) {
    use wire::answer::Answer as W;
    let Body::Answered(answered) = body else { return };
    let Some(wire::answered::Result::Answer(answer)) = &mut answered.result else { return };
    match &mut answer.answer {
        Some(W::Registered(registered)) => *registered = bytes,
        Some(W::Described(described)) => described.layouts = bytes,
        Some(W::Listed(listed)) => *listed = bytes,
        _ => {}
    }
}

pub(super) fn assignment(
    m: wire::Assignment,
    field: &mut Field,
) -> Result<Assignment, MalformedMessage> {
    let shard = |m: wire::SourceShard| {
        Ok::<_, MalformedMessage>(SourceShard {
            data_address: m.data_address,
            export: ExportId(m.export),
            generation: Generation(m.generation),
            layout: content_digest(&m.layout)?,
        })
    };
    let bytes = field.or(m.shards)?;
    // Count before decoding: shards of two bytes each would take many times as much in memory.
    let few = count::fields(&bytes, 1).is_some_and(|count| count <= bytes.len() / SHARD_BYTES);
    if !few {
        return Err(MalformedMessage("more source shards than there is room for"));
    }
    let shards =
        wire::SourceShards::decode(bytes).map_err(|_| MalformedMessage("source shards"))?.shards;
    if !shards.len().is_multiple_of(1 + m.helpers.len()) {
        return Err(MalformedMessage("helpers have as many shards as the source"));
    }
    Ok(Assignment {
        version: version(m.version)?,
        catalog: content_digest(&m.catalog)?,
        replica: m.replica,
        in_flight: m.in_flight,
        staged: m.staged,
        helpers: m.helpers,
        shards: shards.into_iter().map(shard).collect::<Result<_, _>>()?,
    })
}

/// A witness, with its shards in the same frame. Few shards of a large group are told of witnesses.
fn witness(m: wire::Assignment) -> Result<Assignment, MalformedMessage> {
    assignment(m, &mut Field::default())
}

fn witness_frame(m: Assignment) -> wire::Assignment {
    let shards = Encoder::default().shards(Arc::clone(&m.shards));
    wire::Assignment { shards, ..assignment_frame(m) }
}

/// An assignment without its shards.
pub(super) fn assignment_frame(m: Assignment) -> wire::Assignment {
    wire::Assignment {
        version: Some(version_frame(m.version)),
        catalog: m.catalog.0.to_vec(),
        replica: m.replica,
        in_flight: m.in_flight,
        staged: m.staged,
        helpers: m.helpers,
        shards: Bytes::new(),
    }
}

fn layouts(bytes: &[u8]) -> Result<Arc<[ContentDigest]>, MalformedMessage> {
    let (digests, rest) = bytes.as_chunks::<16>();
    match rest {
        [] => Ok(digests.iter().copied().map(ContentDigest).collect()),
        _ => Err(MalformedMessage("a digest is not 16 bytes")),
    }
}

fn registered(bytes: &[u8]) -> Result<Answer, MalformedMessage> {
    let m = wire::Registered::decode(bytes).map_err(|_| MalformedMessage("registered"))?;
    let sibling = |m: wire::Sibling| Sibling {
        shard: m.shard,
        host: m.host,
        data_address: m.data_address,
        export: ExportId(m.export),
    };
    let siblings = m.siblings.into_iter().map(sibling).collect();
    Ok(Answer::Registered { layouts: layouts(&m.layouts)?, siblings })
}

fn answer(answer: wire::answer::Answer, field: &mut Field) -> Result<Answer, MalformedMessage> {
    use wire::answer::Answer as W;
    Ok(match answer {
        W::Registered(bytes) => registered(&field.or(bytes)?)?,
        W::Unregistered(_) => Answer::Unregistered,
        W::Published(m) => Answer::Published { version: version(Some(m))? },
        W::Unpublished(_) => Answer::Unpublished,
        W::Committed(m) => Answer::Committed { version: version(m.version)?, source: m.source },
        W::Unchanged(m) => {
            Answer::Unchanged { held: m.held.map(|v| version(Some(v))).transpose()? }
        }
        W::Described(m) => Answer::Described {
            version: version(m.version)?,
            layouts: layouts(&field.or(m.layouts)?)?,
        },
        W::Retained(m) => Answer::Retained { version: version(Some(m))? },
        W::LetGo(_) => Answer::LetGo,
        W::Listed(bytes) => Answer::Listed(Arc::new(listing(&field.or(bytes)?)?)),
    })
}

/// An answer without its large field; and the field.
fn answer_frame(answer: Answer, encoder: &mut Encoder) -> (wire::answer::Answer, Option<Bytes>) {
    use wire::answer::Answer as W;
    let frame = match answer {
        Answer::Registered { layouts, siblings } => {
            return (W::Registered(Bytes::new()), Some(encoder.registered(layouts, siblings)));
        }
        Answer::Described { version, layouts } => {
            let version = Some(version_frame(version));
            let frame = wire::Described { version, layouts: Bytes::new() };
            return (W::Described(frame), Some(encoder.layouts(layouts)));
        }
        Answer::Listed(listing) => {
            return (W::Listed(Bytes::new()), Some(encoder.listing(listing)));
        }
        Answer::Unregistered => W::Unregistered(wire::Unregister {}),
        Answer::Published { version } => W::Published(version_frame(version)),
        Answer::Unpublished => W::Unpublished(wire::Unpublish {}),
        Answer::Retained { version } => W::Retained(version_frame(version)),
        // The number is the asker's own.
        Answer::LetGo => W::LetGo(wire::LetGo::default()),
        Answer::Committed { version, source } => {
            W::Committed(wire::Committed { version: Some(version_frame(version)), source })
        }
        Answer::Unchanged { held } => {
            W::Unchanged(wire::Unchanged { held: held.map(version_frame) })
        }
    };
    (frame, None)
}

fn listing(bytes: &[u8]) -> Result<Listing, MalformedMessage> {
    let m = wire::Listing::decode(bytes).map_err(|_| MalformedMessage("listing"))?;
    let mut listing = Listing { revision: revision(m.revision)?, ..Listing::default() };
    for listed in m.versions {
        let replicas = listed.replicas.into_iter().collect();
        listing.versions.insert(version(listed.version)?, replicas);
    }
    Ok(listing)
}
