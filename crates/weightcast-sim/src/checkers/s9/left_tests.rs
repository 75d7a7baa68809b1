use weightcast_protocol::message::{Answer, Assignment, Call, SourceShard};
use weightcast_protocol::{
    CallError, ContentDigest, Epoch, ExportId, OpSeq, Selector, Span, Term, Version,
};

use super::*;

const SECOND: Span = Span::from_secs(1);
const TERM: Term = Term(7);

/// Group 1 gives its copy up, group 2 is the other source, group 3 reads.
struct GivingUp {
    checker: NobodyLeft,
    now: Time,
}

fn group(number: u64) -> Incarnation {
    Incarnation { term: TERM, number }
}

fn who(number: u64) -> Who {
    Who { incarnation: Some(group(number)), process: number as usize, shard: 0, num_shards: 1 }
}

impl GivingUp {
    fn new(sources: &[u64]) -> Self {
        let checker = NobodyLeft::new(Span::from_secs(100), SECOND);
        let mut scene = Self { checker, now: Time(0) };
        for source in [1, 2] {
            let export = ExportId(source);
            let layout = ContentDigest::default();
            scene.calls(source, 1, Call::Register { layout, export, bytes: 1 });
            let (catalog, generation) = (ContentDigest::default(), Generation(1));
            scene.calls(source, 2, Call::Publish { version: 1, catalog, generation });
        }
        scene.calls(3, 1, Call::Replicate { selector: Selector::Latest });
        scene.says(3, assigned(sources));
        scene
    }

    fn hears(&mut self, from: u64, message: ClientMessage) {
        let fact = Fact::Heard { who: who(from), term: TERM, message: &message };
        assert_eq!(self.checker.observe(self.now, &fact), None);
    }

    fn calls(&mut self, from: u64, seq: u64, call: Call) {
        let deadline = Span::from_secs(50);
        self.hears(from, ClientMessage::Call { seq: OpSeq(seq), deadline, call });
    }

    fn beats(&mut self, from: u64) {
        self.hears(from, ClientMessage::Heartbeat { sent_at: 0 });
    }

    fn says(&mut self, to: u64, message: ServerMessage) {
        let fact = Fact::Said { who: who(to), term: TERM, message: &message };
        assert_eq!(self.checker.observe(self.now, &fact), None);
    }

    fn breaks(&mut self, stream_of: u64) {
        let fact = Fact::Unlinked { who: who(stream_of), term: TERM };
        assert_eq!(self.checker.observe(self.now, &fact), None);
    }

    /// Whether the checker complains when group 1 is told that its `unpublish` has ended.
    fn must_be_read(mut self) -> bool {
        self.calls(1, 3, Call::Unpublish);
        let message = ServerMessage::Answered { seq: OpSeq(3), result: Ok(Answer::Unpublished) };
        let fact = Fact::Said { who: who(1), term: TERM, message: &message };
        self.checker.observe(self.now, &fact).is_some()
    }
}

fn assigned(sources: &[u64]) -> ServerMessage {
    let shards = sources.iter().map(|source| SourceShard {
        data_address: String::new(),
        export: ExportId(*source),
        generation: Generation(1),
        layout: ContentDigest::default(),
    });
    let assignment = Assignment {
        version: Version { epoch: Epoch(1), number: 1 },
        catalog: ContentDigest::default(),
        replica: "1".into(),
        in_flight: false,
        staged: false,
        helpers: Vec::new(),
        shards: shards.collect(),
    };
    let (attempt, since) = (Attempt(1), Attempt(1));
    ServerMessage::Assigned { seq: OpSeq(1), attempt, since, assignment }
}

#[test]
fn a_reader_whose_stream_is_broken_may_have_lost_one_of_several_sources() {
    for sources in [&[1][..], &[1, 2]] {
        assert!(GivingUp::new(sources).must_be_read());
        let mut broken = GivingUp::new(sources);
        broken.breaks(3);
        assert_eq!(broken.must_be_read(), sources.len() == 1, "the only one is taken from nobody");
        let mut back = GivingUp::new(sources);
        back.breaks(3);
        back.beats(3);
        assert!(back.must_be_read(), "it would have heard");
        let mut other = GivingUp::new(sources);
        other.breaks(2);
        assert!(other.must_be_read(), "it is not its stream");
    }
}

/// A tenth of the lease, by a clock that runs fast.
#[test]
fn a_reader_that_was_not_heard_of_for_long_may_have_been_left_behind() {
    for (seconds, back, read) in
        [(8, false, true), (8, true, true), (9, false, false), (9, true, false)]
    {
        let mut scene = GivingUp::new(&[1]);
        scene.breaks(3);
        scene.now = Time(0) + Span::from_secs(seconds);
        if back {
            scene.beats(3);
        }
        assert_eq!(scene.must_be_read(), read, "{seconds} {back}");
    }
}

#[test]
fn a_reader_that_is_never_taken_in_again_reads_no_more() {
    for retry in [false, true] {
        let mut scene = GivingUp::new(&[1]);
        let error = CallError::Misuse { detail: "it was evicted".into() };
        scene.says(3, ServerMessage::Refused { error, retry });
        assert_eq!(scene.must_be_read(), retry);
    }
}

#[test]
fn readers_of_what_another_source_had_may_be_moved_once_its_update_has_drained() {
    let update =
        || Call::Update { selector: Selector::Latest, allow_rollback: false, staged: true };
    for (tenths, ended, read) in [(8, false, true), (9, false, false), (9, true, true)] {
        for sources in [&[1][..], &[1, 2]] {
            let mut scene = GivingUp::new(sources);
            scene.calls(2, 3, update());
            if ended {
                let result = Ok(Answer::Unchanged { held: None });
                scene.says(2, ServerMessage::Answered { seq: OpSeq(3), result });
            }
            scene.now = Time(0) + SECOND.scaled(tenths, 10);
            [1, 2, 3].into_iter().for_each(|group| scene.beats(group));
            assert_eq!(scene.must_be_read(), read || sources.len() == 1, "{tenths}, {ended}");
        }
    }
}

#[test]
fn a_reader_whose_calls_come_without_its_heartbeats_may_have_been_evicted() {
    for (beats_again, read) in [(false, false), (true, true)] {
        let mut scene = GivingUp::new(&[1]);
        scene.beats(3);
        scene.now = Time(0) + Span::from_secs(51);
        let filling =
            ClientMessage::Filling { seq: OpSeq(1), since: Attempt(1), generation: Generation(2) };
        scene.hears(3, filling);
        if beats_again {
            scene.beats(3);
        }
        // Neither its deadline nor the drain's has passed.
        scene.checker.deadlines.clear();
        scene.checker.deadlines.insert((group(3), OpSeq(1)), Time(u64::MAX));
        assert_eq!(scene.must_be_read(), read);
    }
}
