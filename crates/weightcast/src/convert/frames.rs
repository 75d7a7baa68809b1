//! Frames of messages to clients, and messages of frames. A field that is larger than a page comes in pages before the
//! frame that it belongs to.

use std::mem;

use weightcast_protocol::message::ServerMessage;

use super::large::{Encoder, Field};
use super::server::{message, message_frame};
use super::{MalformedMessage, need};
use crate::limits::{MESSAGE_BYTES, PAGE_BYTES};
use crate::wire;
use crate::wire::server_frame::Body;

impl Encoder {
    /// The frames of a message, in order. The caller counts their own bytes; this encoder counts
    /// the bytes that they share.
    pub(crate) fn frames(&mut self, message: ServerMessage) -> Vec<wire::ServerFrame> {
        let (mut body, field) = message_frame(message, self);
        let mut frames = Vec::new();
        if let Some((set, bytes)) = field {
            if bytes.len() <= PAGE_BYTES {
                set(&mut body, bytes);
            } else {
                let page = |at: usize| bytes.slice(at..bytes.len().min(at + PAGE_BYTES));
                let pages = (0..bytes.len()).step_by(PAGE_BYTES).map(|at| Body::Page(page(at)));
                frames.extend(pages.map(|page| wire::ServerFrame { body: Some(page) }));
            }
        }
        frames.push(wire::ServerFrame { body: Some(body) });
        frames
    }
}

/// Makes messages of frames.
#[derive(Default)]
pub(crate) struct Assembly {
    pages: Vec<u8>,
}

impl Assembly {
    /// Takes a frame. Returns the message, if the frame completes it.
    pub(crate) fn take(
        &mut self,
        frame: wire::ServerFrame,
    ) -> Result<Option<ServerMessage>, MalformedMessage> {
        match need(frame.body, "empty frame")? {
            Body::Page(page) => {
                if page.is_empty() || self.pages.len() + page.len() > MESSAGE_BYTES {
                    return Err(MalformedMessage("a message of no or too many pages"));
                }
                self.pages.extend_from_slice(&page);
                Ok(None)
            }
            body => {
                let mut field = Field(mem::take(&mut self.pages));
                let message = message(body, &mut field)?;
                match field.0.is_empty() {
                    true => Ok(Some(message)),
                    false => Err(MalformedMessage("pages of a message without a large field")),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prost::Message;
    use prost::bytes::Bytes;
    use weightcast_protocol::ContentDigest;
    use weightcast_protocol::limits::{Limits, NAME_BYTES};
    use weightcast_protocol::message::{Answer, Assignment, Listing, Sibling, SourceShard};
    use weightcast_protocol::{
        Attempt, Epoch, ExportId, Generation, OpSeq, Revision, Term, Version,
    };

    use super::super::large::ByteMeter;
    use super::*;
    use crate::limits::FRAME_BYTES;

    fn name(number: usize) -> String {
        format!("{number:0>NAME_BYTES$}")
    }

    fn version(number: usize) -> Version {
        Version { epoch: Epoch(u64::MAX - 1), number: u64::MAX - number as u64 }
    }

    fn answered(answer: Answer) -> ServerMessage {
        ServerMessage::Answered { seq: OpSeq(u64::MAX), result: Ok(answer) }
    }

    fn layouts(count: u32) -> Arc<[ContentDigest]> {
        (0..count).map(|shard| ContentDigest([shard as u8; 16])).collect()
    }

    fn sibling(shard: u32) -> Sibling {
        let (host, export) = (u32::MAX, ExportId(u64::MAX));
        Sibling { shard, host, data_address: name(shard as usize), export }
    }

    fn assigned(sources: usize, shards: u32) -> ServerMessage {
        let shard = |shard: u32| SourceShard {
            data_address: name(shard as usize),
            export: ExportId(u64::MAX),
            generation: Generation(u64::MAX),
            layout: ContentDigest([1; 16]),
        };
        ServerMessage::Assigned {
            seq: OpSeq(u64::MAX),
            attempt: Attempt(u64::MAX),
            since: Attempt(u64::MAX),
            assignment: Assignment {
                version: version(0),
                catalog: ContentDigest([2; 16]),
                replica: name(0),
                in_flight: true,
                staged: true,
                helpers: (1..sources).map(name).collect(),
                shards: (0..shards).map(shard).collect(),
            },
        }
    }

    fn listing(replicas: usize) -> Listing {
        let versions = (0..replicas).map(|at| (version(at), [name(at)].into()));
        Listing {
            revision: Revision { term: Term(u64::MAX), number: u64::MAX },
            versions: versions.collect(),
        }
    }

    /// The largest that the protocol's own limits allow.
    fn largest() -> [ServerMessage; 5] {
        let limits = Limits::default();
        [
            assigned(1, limits.shards_per_group),
            assigned(limits.sources as usize, limits.source_shards),
            answered(Answer::Registered {
                layouts: layouts(limits.shards_per_group),
                siblings: (0..limits.shards_per_group).map(sibling).collect(),
            }),
            answered(Answer::Described {
                version: version(0),
                layouts: layouts(limits.shards_per_group),
            }),
            answered(Answer::Listed(Arc::new(listing(limits.sessions)))),
        ]
    }

    #[test]
    fn the_largest_messages_come_in_frames_and_come_back() {
        for message in largest() {
            let (mut assembly, mut whole) = (Assembly::default(), 0);
            let frames = Encoder::default().frames(message.clone());
            let (last, pages) = frames.split_last().unwrap();
            for page in pages {
                assert!(page.encoded_len() <= FRAME_BYTES);
                whole += page.encoded_len();
                assert_eq!(assembly.take(page.clone()).unwrap(), None);
            }
            let last_bytes = last.encoded_len();
            assert!(whole <= MESSAGE_BYTES && last_bytes <= FRAME_BYTES, "{whole} {last_bytes}");
            assert!(whole + last_bytes >= PAGE_BYTES, "these are the large ones");
            assert!(assembly.take(last.clone()).unwrap() == Some(message));
        }
    }

    #[test]
    fn pages_are_bounded_and_belong_to_a_message() {
        let frame = |body| wire::ServerFrame { body: Some(body) };
        let page = |bytes: usize| frame(Body::Page(vec![0; bytes].into()));
        let mut assembly = Assembly::default();
        assert!(assembly.take(page(MESSAGE_BYTES)).is_ok());
        assert!(assembly.take(page(1)).is_err());
        assert!(Assembly::default().take(page(0)).is_err());
        let mut assembly = Assembly::default();
        assembly.take(page(1)).unwrap();
        assert!(assembly.take(frame(Body::Closed(wire::Closed {}))).is_err());
        let mut assembly = Assembly::default();
        assembly.take(page(16)).unwrap();
        let [inline] = &Encoder::default()
            .frames(answered(Answer::Described { version: version(0), layouts: layouts(1) }))[..]
        else {
            panic!("one digest is no page")
        };
        assert!(assembly.take(inline.clone()).is_err(), "both in a page and not");
    }

    #[test]
    fn sources_of_two_bytes_are_refused_before_they_are_made() {
        let shards = Bytes::from([10, 0].repeat(1 << 20));
        let frame = wire::Assigned {
            assignment: Some(wire::Assignment { shards, ..wire::Assignment::default() }),
            ..wire::Assigned::default()
        };
        let frame = wire::ServerFrame { body: Some(Body::Assigned(frame)) };
        let refused = Assembly::default().take(frame).unwrap_err().to_string();
        assert!(refused.contains("more source shards"), "{refused}");
    }

    #[test]
    fn what_many_are_told_is_made_and_counted_once() {
        let meter = ByteMeter::default();
        let mut encoder = Encoder::new(meter.clone());
        let told = answered(Answer::Listed(Arc::new(listing(1_000))));
        let frames: Vec<_> = (0..100).map(|_| encoder.frames(told.clone())).collect();
        let one = meter.alive();
        assert!((500_000..600_000).contains(&one), "{one}");
        encoder.frames(answered(Answer::Listed(Arc::new(listing(1)))));
        assert!(meter.alive() > one, "the first is still somebody's");
        drop(frames);
        assert!(meter.alive() < 1_000);
    }
}
