//! Frames from the server to a session.

use std::sync::Arc;

use prost::Message;
use prost::bytes::Bytes;
use weightcast_protocol::message::{Answer, Assignment, Listing, ServerMessage, SourceShard};
use weightcast_protocol::{Attempt, ContentDigest, ExportId, Generation, OpSeq, Revision, Span};

use super::error::{error, error_frame};
use super::ticket::{ticket, ticket_frame};
use super::values::{version, version_frame};
use super::{Malformed, content_digest, need};
use crate::wire;
use crate::wire::server_frame::Body;

/// Frame to message.
pub(crate) fn server_message(frame: wire::ServerFrame) -> Result<ServerMessage, Malformed> {
    Ok(match need(frame.body, "empty frame")? {
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
            assignment: assignment(need(m.assignment, "assignment")?)?,
        },
        Body::Install(m) => ServerMessage::Install {
            seq: OpSeq(m.seq),
            attempt: Attempt(m.attempt),
            deadline: Span(m.deadline_ns),
        },
        Body::Answered(m) => ServerMessage::Answered {
            seq: OpSeq(m.seq),
            result: match need(m.result, "result")? {
                wire::answered::Result::Answer(a) => Ok(answer(need(a.answer, "answer")?)?),
                wire::answered::Result::Error(e) => Err(error(Some(e))?),
            },
        },
        Body::Fenced(m) => {
            ServerMessage::Fenced { generation: Generation(m.generation), error: error(m.error)? }
        }
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

/// Message to frame.
pub(crate) fn server_frame(
    message: ServerMessage,
    listings: &mut ListingBytes,
) -> wire::ServerFrame {
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
                Ok(a) => Some(wire::answered::Result::Answer(wire::Answer {
                    answer: Some(answer_frame(a, listings)),
                })),
                Err(e) => error_frame(e).map(wire::answered::Result::Error),
            },
        }),
        ServerMessage::Fenced { generation, error } => {
            Body::Fenced(wire::Fenced { generation: generation.0, error: error_frame(error) })
        }
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
    wire::ServerFrame { body: Some(body) }
}

/// The bytes of the last listing: the shards of a group, and groups that ask before anything has
/// changed, share one answer.
#[derive(Default)]
pub(crate) struct ListingBytes(Option<(Arc<Listing>, Bytes)>);

impl ListingBytes {
    fn of(&mut self, listing: Arc<Listing>) -> Bytes {
        if let Some((same, bytes)) = &self.0
            && Arc::ptr_eq(same, &listing)
        {
            return bytes.clone();
        }
        let bytes = Bytes::from(listing_frame(&listing).encode_to_vec());
        self.0 = Some((listing, bytes.clone()));
        bytes
    }
}

pub(super) fn assignment(m: wire::Assignment) -> Result<Assignment, Malformed> {
    let shard = |m: wire::SourceShard| {
        Ok::<_, Malformed>(SourceShard {
            data_address: m.data_address,
            export: ExportId(m.export),
            generation: Generation(m.generation),
            layout: content_digest(&m.layout)?,
        })
    };
    let each = m.shards.len();
    if m.helpers.iter().any(|helper| helper.shards.len() != each) {
        return Err(Malformed("helpers have as many shards as the source"));
    }
    let (helpers, further): (Vec<_>, Vec<_>) =
        m.helpers.into_iter().map(|helper| (helper.replica, helper.shards)).unzip();
    let shards = m.shards.into_iter().chain(further.into_iter().flatten());
    Ok(Assignment {
        version: version(m.version)?,
        catalog: content_digest(&m.catalog)?,
        replica: m.replica,
        in_flight: m.in_flight,
        staged: m.staged,
        helpers,
        shards: shards.map(shard).collect::<Result<_, _>>()?,
    })
}

pub(super) fn assignment_frame(m: Assignment) -> wire::Assignment {
    let shard = |m: SourceShard| wire::SourceShard {
        data_address: m.data_address,
        export: m.export.0,
        generation: m.generation.0,
        layout: m.layout.0.to_vec(),
    };
    let each = m.shards_each();
    let mut shards = m.shards.into_iter().map(shard);
    let first = shards.by_ref().take(each).collect();
    let helpers = m
        .helpers
        .into_iter()
        .map(|replica| wire::Helper { replica, shards: shards.by_ref().take(each).collect() });
    wire::Assignment {
        version: Some(version_frame(m.version)),
        catalog: m.catalog.0.to_vec(),
        replica: m.replica,
        in_flight: m.in_flight,
        staged: m.staged,
        helpers: helpers.collect(),
        shards: first,
    }
}

fn layouts(layouts: &[Vec<u8>]) -> Result<Vec<ContentDigest>, Malformed> {
    layouts.iter().map(|bytes| content_digest(bytes)).collect()
}

fn layouts_frame(layouts: &[ContentDigest]) -> Vec<Vec<u8>> {
    layouts.iter().map(|digest| digest.0.to_vec()).collect()
}

fn answer(answer: wire::answer::Answer) -> Result<Answer, Malformed> {
    use wire::answer::Answer as W;
    Ok(match answer {
        W::Registered(m) => Answer::Registered { layouts: layouts(&m.layouts)? },
        W::Unregistered(_) => Answer::Unregistered,
        W::Published(m) => Answer::Published { version: version(Some(m))? },
        W::Unpublished(_) => Answer::Unpublished,
        W::Committed(m) => Answer::Committed { version: version(m.version)?, source: m.source },
        W::Unchanged(m) => {
            Answer::Unchanged { held: m.held.map(|v| version(Some(v))).transpose()? }
        }
        W::Described(m) => {
            Answer::Described { version: version(m.version)?, layouts: layouts(&m.layouts)? }
        }
        W::Listed(bytes) => Answer::Listed(Arc::new(listing(&bytes)?)),
    })
}

fn answer_frame(answer: Answer, listings: &mut ListingBytes) -> wire::answer::Answer {
    use wire::answer::Answer as W;
    match answer {
        Answer::Registered { layouts } => {
            W::Registered(wire::Layouts { layouts: layouts_frame(&layouts) })
        }
        Answer::Unregistered => W::Unregistered(wire::Unregister {}),
        Answer::Published { version } => W::Published(version_frame(version)),
        Answer::Unpublished => W::Unpublished(wire::Unpublish {}),
        Answer::Committed { version, source } => {
            W::Committed(wire::Committed { version: Some(version_frame(version)), source })
        }
        Answer::Unchanged { held } => {
            W::Unchanged(wire::Unchanged { held: held.map(version_frame) })
        }
        Answer::Described { version, layouts } => W::Described(wire::Described {
            version: Some(version_frame(version)),
            layouts: layouts_frame(&layouts),
        }),
        Answer::Listed(listing) => W::Listed(listings.of(listing)),
    }
}

fn listing(bytes: &[u8]) -> Result<Listing, Malformed> {
    let m = wire::Listing::decode(bytes).map_err(|_| Malformed("listing"))?;
    let mut listing = Listing { revision: Revision(m.revision), ..Listing::default() };
    for listed in m.versions {
        let replicas = listed.replicas.into_iter().collect();
        listing.versions.insert(version(listed.version)?, replicas);
    }
    Ok(listing)
}

fn listing_frame(listing: &Listing) -> wire::Listing {
    let versions = listing.versions.iter().map(|(version, replicas)| wire::Listed {
        version: Some(version_frame(*version)),
        replicas: replicas.iter().cloned().collect(),
    });
    wire::Listing { revision: listing.revision.0, versions: versions.collect() }
}
