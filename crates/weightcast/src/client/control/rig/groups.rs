//! Groups of several shards: they do as one what they do, whatever becomes of one of them.

use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{Selector, Span};
use weightcast_transport::HoldPoint::{Asking, Judging, Taking, Telling};
use weightcast_transport::Way;

use super::scene::{LONG, form, kind, run};
use super::worker::{ClientKind, Form, good};
use super::world::RigWorld;
use crate::client::event::{CallReply, Event};

const BYTES: u64 = 9_000;

impl RigWorld {
    /// A group of so many shards.
    pub(super) fn join_group(
        &mut self,
        shards: u32,
        client: impl Fn() -> ClientKind,
    ) -> Vec<usize> {
        let shard = |shard| {
            let kind = client();
            ClientKind { form: Form { shard, shards, ..kind.form }, ..kind }
        };
        (0..shards).map(|index| self.join(shard(index))).collect()
    }

    /// All shards make the same call, each with its own answer.
    pub(super) async fn together(&mut self, group: &[usize], call: &Call) -> Vec<CallReply> {
        for shard in group {
            self.workers[*shard].take_back();
            self.begin(*shard, call.clone(), LONG);
        }
        self.answers(group).await
    }

    pub(super) async fn answers(&mut self, group: &[usize]) -> Vec<CallReply> {
        let mut replies = Vec::new();
        for shard in group {
            replies.push(self.answer(*shard).await);
        }
        replies
    }

    pub(super) async fn register_group(&mut self, group: &[usize]) {
        let now = self.now;
        for shard in group {
            self.acting(*shard, "register", |worker| worker.register(now));
        }
        for shard in group {
            self.registered(*shard).await;
        }
    }

    pub(super) async fn publish_group(&mut self, group: &[usize], version: u64) {
        let now = self.now;
        for shard in group {
            self.workers[*shard].write(version);
            self.acting(*shard, "publish", |worker| worker.publish(now, version));
        }
        for reply in self.answers(group).await {
            assert!(matches!(good(reply), Answer::Published { .. }));
        }
        self.settle().await;
    }

    /// All give up what they hold, and write to it.
    pub(super) async fn give_up(&mut self, group: &[usize]) {
        for reply in self.together(group, &Call::Unpublish).await {
            assert_eq!(good(reply), Answer::Unpublished);
        }
        group.iter().for_each(|shard| self.workers[*shard].let_go(0xdd));
    }

    /// The number that all shards hold.
    pub(super) fn held(&self, group: &[usize]) -> Option<u64> {
        let of = |shard: &usize| self.workers[*shard].control.session.version().map(|v| v.number);
        let held = of(&group[0]);
        assert!(group.iter().all(|shard| of(shard) == held), "one holds what another does not");
        held
    }
}

pub(super) fn update(staged: bool) -> Call {
    Call::Update { selector: Selector::Latest, allow_rollback: false, staged }
}

pub(super) fn reader(way: Way, relays: bool) -> impl Fn() -> ClientKind {
    move || ClientKind { relays, ..kind(Role::Rollout, form(BYTES), way) }
}

pub(super) fn trainer() -> ClientKind {
    kind(Role::Trainer, form(BYTES), Way::Auto)
}

/// A trainer's group, which has published version 1, and a reader's.
pub(super) async fn groups(
    (trainers, readers): (u32, u32),
    reader: impl Fn() -> ClientKind,
) -> (RigWorld, Vec<usize>, Vec<usize>) {
    let mut world = RigWorld::new(1);
    let trainers = world.join_group(trainers, trainer);
    let readers = world.join_group(readers, reader);
    world.register_group(&trainers).await;
    world.register_group(&readers).await;
    world.publish_group(&trainers, 1).await;
    (world, trainers, readers)
}

#[test]
fn groups_of_any_size_read_from_each_other() {
    run(async {
        for sizes in [(1, 2), (2, 1), (2, 2), (3, 2)] {
            for (way, relays) in [(Way::Direct, false), (Way::Tcp, true), (Way::Direct, true)] {
                let (mut world, trainers, readers) = groups(sizes, reader(way, relays)).await;
                for (version, staged) in [(1, false), (2, false), (3, true), (4, true)] {
                    for reply in world.together(&readers, &update(staged)).await {
                        assert!(matches!(good(reply), Answer::Committed { .. }), "{sizes:?}");
                    }
                    assert_eq!(world.held(&readers), Some(version));
                    world.notes_are_served();
                    world.give_up(&trainers).await;
                    world.publish_group(&trainers, version + 1).await;
                }
                world.give_up(&readers).await;
                world.look().await;
            }
        }
    });
}

/// Nobody holds a version before all shards have it.
#[test]
fn nobody_commits_before_the_last_has_read() {
    run(async {
        for point in [Asking, Taking, Judging, Telling] {
            for first in [0, 1] {
                let (mut world, _, mut readers) = groups((1, 2), reader(Way::Direct, true)).await;
                readers.rotate_left(first);
                // One at a time: the second comes to a point when the first has read.
                world.begin(readers[0], update(false), LONG);
                world.settle().await;
                world.gate.stop_at(point, 1);
                world.begin(readers[1], update(false), LONG);
                world.settle().await;
                assert!(world.gate.is_held(), "{point:?}");
                world.pass(Span::from_secs(1)).await;
                assert_eq!(world.held(&readers), None, "{point:?}");
                assert!(readers.iter().all(|shard| world.workers[*shard].pending.is_some()));
                world.gate.open();
                for reply in world.answers(&readers).await {
                    assert!(matches!(good(reply), Answer::Committed { .. }));
                }
                assert_eq!(world.held(&readers), Some(1));
                world.look().await;
            }
        }
    });
}

/// What a shard may meet while its group reads.
type ShardLoss = (&'static str, fn(&mut RigWorld, usize));

const LOSSES: [ShardLoss; 3] = [
    ("it closes", close),
    ("it loses its server", |world, shard| {
        super::net::lock(&world.net).unreachable.push(shard);
        world.cut(shard);
    }),
    ("its process ends", |world, shard| {
        world.cut(shard);
        world.replace(shard, shard_of(world, shard));
    }),
];

fn close(world: &mut RigWorld, shard: usize) {
    let (reply, _closed) = std::sync::mpsc::channel();
    world.happen(shard, Event::Close { deadline: Span::from_millis(1), reply });
}

fn shard_of(world: &RigWorld, shard: usize) -> ClientKind {
    kind(Role::Rollout, world.workers[shard].form, Way::Direct)
}

/// Its next call fails, and it has nothing any more that anybody reads.
async fn learns_that_it_is_over(world: &mut RigWorld, shard: usize) {
    world.begin(shard, Call::Unpublish, Span::from_secs(5));
    assert!(world.answer(shard).await.is_err());
    assert_eq!(world.workers[shard].control.memory.exposed, []);
    world.workers[shard].let_go(0xee);
    world.look().await;
}

/// Another group in the place of one that is over, which reads what there is.
async fn anew(world: &mut RigWorld, group: &[usize]) {
    super::net::lock(&world.net).unreachable.clear();
    // All are gone before the first comes, or it would belong to what is over.
    for shard in group {
        close(world, *shard);
    }
    world.pass(Span::from_secs(10)).await;
    for shard in group {
        let kind = shard_of(world, *shard);
        world.workers[*shard].pending = None;
        world.replace(*shard, kind);
    }
    world.register_group(group).await;
    for reply in world.together(group, &update(false)).await {
        assert!(matches!(good(reply), Answer::Committed { .. }));
    }
    assert!(world.held(group).is_some());
    world.look().await;
}

/// The other shard's call ends, and not a byte of its memory is written after that; another group
/// finds all as it was.
#[test]
fn a_shard_that_is_lost_ends_the_read_of_the_other() {
    run(async {
        for (what, lose) in LOSSES {
            for (lost, place) in [0, 1].into_iter().flat_map(|lost| [(lost, 0), (lost, 1)]) {
                for staged in [false, true] {
                    let (mut world, trainers, readers) =
                        groups((1, 2), reader(Way::Direct, true)).await;
                    if staged {
                        drop(world.together(&readers, &update(false)).await);
                        world.give_up(&trainers).await;
                        world.publish_group(&trainers, 2).await;
                    }
                    world.gate.stop_at(Judging, place);
                    readers.iter().for_each(|shard| world.begin(*shard, update(staged), LONG));
                    world.settle().await;
                    assert!(world.gate.is_held(), "{what}");
                    lose(&mut world, readers[lost]);
                    world.pass(Span::from_secs(6)).await;
                    world.gate.open();
                    let other = readers[1 - lost];
                    let reply = world.answer(other).await;
                    assert!(reply.is_err(), "{what}: shard {lost} at {place}, staged: {staged}");
                    if world.workers[other].control.session.version().is_none() {
                        world.workers[other].let_go(0xee);
                    }
                    world.pass(Span::from_secs(80)).await;
                    world.look().await;
                    learns_that_it_is_over(&mut world, other).await;
                    anew(&mut world, &readers).await;
                }
            }
        }
    });
}

/// The other one holds it no longer, and nobody reads from what is left.
#[test]
fn a_shard_that_is_lost_takes_what_its_group_holds_with_it() {
    run(async {
        for (what, lose) in LOSSES {
            for lost in [0, 1] {
                let (mut world, _, readers) = groups((2, 2), reader(Way::Direct, true)).await;
                drop(world.together(&readers, &update(false)).await);
                assert_eq!(world.held(&readers), Some(1));
                lose(&mut world, readers[lost]);
                world.pass(Span::from_secs(80)).await;
                let other = readers[1 - lost];
                let ended = world.workers[other].control.session.state() == SessionState::Ended;
                assert_eq!(
                    ended,
                    what != "it closes",
                    "who is not told learns of it by its next call"
                );
                learns_that_it_is_over(&mut world, other).await;
                anew(&mut world, &readers).await;
            }
        }
    });
}

/// So many events after the beginning of a call, the stream of one shard breaks; its group's call ends
/// as if it had not. Whether there was such an event.
async fn broken_after(events: u64, call: &Call, broken: usize) -> bool {
    let (mut world, trainers, readers) = groups((1, 2), reader(Way::Direct, true)).await;
    if *call != update(false) {
        drop(world.together(&readers, &update(false)).await);
        world.give_up(&trainers).await;
        world.publish_group(&trainers, 2).await;
    }
    readers.iter().for_each(|shard| world.begin(*shard, call.clone(), LONG));
    let first = world.happened;
    let (mut cut, mut replies) = (false, vec![None, None]);
    while replies.iter().any(Option::is_none) {
        if !cut && world.happened - first >= events {
            world.cut(readers[broken]);
            cut = true;
        }
        for (reply, shard) in replies.iter_mut().zip(&readers) {
            *reply = reply.take().or_else(|| world.workers[*shard].answered());
        }
        world.one().await;
    }
    let answers: Vec<Answer> = replies.into_iter().flatten().map(good).collect();
    assert_eq!(answers[0], answers[1], "{call:?}, cut after {events}");
    let held = world.held(&readers);
    assert_eq!(held.is_none(), *call == Call::Unpublish, "{call:?}, cut after {events}");
    world.look().await;
    cut
}

#[test]
fn the_stream_of_one_shard_may_break_in_each_call() {
    run(async {
        for call in [update(false), update(true), Call::Unpublish] {
            for broken in [0, 1] {
                let mut events = 0;
                while broken_after(events, &call, broken).await {
                    events += 1;
                }
                assert!(events > 0);
            }
        }
    });
}
