//! Shards of one host bring each other what all of them hold: a reader takes chunks from its siblings, as they arrive.

use weightcast_protocol::message::Sibling;
use weightcast_protocol::{Span, Time};

use crate::checkers::Fact;
use crate::parts::process::ChunkRead;
use crate::parts::queue::Life;
use crate::processes::reading::PATIENCE;
use crate::sights::coverage::Point;
use crate::world::World;

/// What a sibling says when it is asked for a chunk.
enum SiblingAnswer {
    /// Nothing: it does not answer now.
    Silent,
    /// Its process is gone, or another one answers.
    Unreachable,
    /// It has not begun this part, or has ended it.
    Closed,
    /// It has begun, and has not come so far.
    Coming,
    /// Here it is; the process that gives it.
    There(usize),
}

impl World {
    /// Asks the sibling that brings a chunk for it.
    pub(super) fn take_chunk(&mut self, life: Life, read: &ChunkRead, place: u32) {
        let process = &self.processes[life.process];
        let Some(sibling) = process.siblings.bringing(place, process.shard).cloned() else {
            return;
        };
        let (now, meet_by) = (self.now, process.siblings.meet_by);
        let later = |millis| Some(now + Span::from_millis(millis));
        let (again, lost) = match self.asked(life.process, &sibling, place) {
            SiblingAnswer::There(giver) => return self.store_taken(life, read, giver, place),
            SiblingAnswer::Silent if now - read.moved_at < PATIENCE => (later(50), None),
            SiblingAnswer::Silent => (None, Some(Point::SiblingFailed)),
            SiblingAnswer::Unreachable => (None, Some(Point::SiblingUnreachable)),
            SiblingAnswer::Coming => {
                self.processes[life.process].siblings.meets(sibling.shard);
                (later(10), None)
            }
            SiblingAnswer::Closed if now < meet_by && !process.siblings.has_met(sibling.shard) => {
                (later(20), None)
            }
            SiblingAnswer::Closed => (None, Some(Point::SiblingFailed)),
        };
        if let Some(point) = lost {
            self.miss_sibling(life, read, point);
        }
        let at: Time = again.unwrap_or(now);
        self.plan_chunk(life, read.seq, read.attempt, at);
    }

    fn asked(&self, reader: usize, sibling: &Sibling, place: u32) -> SiblingAnswer {
        let index = sibling.data_address.parse::<usize>().expect("addresses are indices");
        let giver = &self.processes[index];
        if giver.paused_until.max(giver.trouble.mute_until) > self.now {
            return SiblingAnswer::Silent;
        }
        if giver.session.is_none() || giver.export != sibling.export {
            return SiblingAnswer::Unreachable;
        }
        let mine = self.processes[reader].siblings.open();
        match giver.siblings.open() {
            open if open.is_none() || open != mine => SiblingAnswer::Closed,
            _ if giver.siblings.give(place, giver.siblings.beside) => SiblingAnswer::There(index),
            _ => SiblingAnswer::Coming,
        }
    }

    fn miss_sibling(&mut self, life: Life, read: &ChunkRead, point: Point) {
        self.report.points.insert(point);
        let (who, unreachable) = (self.who(life), point == Point::SiblingUnreachable);
        self.observe(Fact::SiblingMissed { who, seq: read.seq, unreachable });
        let siblings = &mut self.processes[life.process].siblings;
        siblings.go_alone();
        if unreachable {
            siblings.sharing.leave_alone();
        }
    }

    fn store_taken(&mut self, life: Life, read: &ChunkRead, giver: usize, place: u32) {
        let from = &self.processes[giver];
        let chunk = from.memory.range().start + place;
        let beside = from.host.beside.as_ref().filter(|_| from.siblings.beside);
        let tag = beside.map_or(&from.memory, |beside| &beside.memory).get(chunk);
        let process = &mut self.processes[life.process];
        let number = process.siblings.bringing(place, process.shard).map(|sibling| sibling.shard);
        number.into_iter().for_each(|shard| process.siblings.meets(shard));
        let version = read.assignment.version;
        let term = process.session.as_ref().and_then(|s| s.lease()).map(|lease| lease.term);
        let who = self.who(life);
        // Bytes that a fault has changed are passed on as they are.
        let pure = !self.impure && !self.disputed(version);
        self.report.points.insert(Point::SiblingGave);
        if let Some(term) = term {
            self.observe(Fact::Taken { who, term, seq: read.seq, version, chunk, tag, pure });
        }
        self.store(life, read, giver, chunk, tag);
    }
}
