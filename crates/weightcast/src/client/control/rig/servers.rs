//! Two servers, of which one dies or is not reached any more: clients come over with what they hold.

use weightcast_protocol::Span;
use weightcast_protocol::message::{Answer, Call};
use weightcast_transport::Way;

use super::groups::{reader, trainer, update};
use super::net::lock;
use super::scene::run;
use super::worker::good;
use super::world::RigWorld;

/// Long enough for all to come over, and for the time of a server that has taken over to pass.
const OVER: Span = Span::from_secs(15);

/// A trainer's group that has published version 1, a reader's that holds it, and one that does not.
struct ServedGroups {
    world: RigWorld,
    trainers: Vec<usize>,
    readers: Vec<usize>,
    others: Vec<usize>,
}

impl ServedGroups {
    async fn new(servers: usize, shards: u32) -> Self {
        let mut world = RigWorld::with_servers(3, servers);
        let trainers = world.join_group(1, trainer);
        let readers = world.join_group(shards, reader(Way::Direct, true));
        let others = world.join_group(shards, reader(Way::Tcp, true));
        for group in [&trainers, &readers, &others] {
            world.register_group(group).await;
        }
        world.publish_group(&trainers, 1).await;
        for reply in world.together(&readers, &update(false)).await {
            assert!(matches!(good(reply), Answer::Committed { .. }));
        }
        Self { world, trainers, readers, others }
    }

    fn all(&self) -> Vec<usize> {
        (0..self.world.workers.len()).collect()
    }

    /// Everybody's stream is to this server.
    fn are_at(&self, server: usize) {
        let net = lock(&self.world.net);
        let at: Vec<_> = self.all().into_iter().map(|worker| net.server_of(worker)).collect();
        assert!(at.iter().all(|at| *at == Some(server)), "{at:?}");
    }

    /// Who held something holds it, who did not reads it, and the next version comes to all.
    async fn goes_on(&mut self) {
        let world = &mut self.world;
        assert_eq!(world.held(&self.trainers), Some(1));
        assert_eq!(world.held(&self.readers), Some(1));
        // With the trainer gone, from those who came over.
        world.give_up(&self.trainers).await;
        for reply in world.together(&self.others, &update(false)).await {
            assert!(matches!(good(reply), Answer::Committed { .. }));
        }
        world.look().await;
        world.notes_are_served();
        world.publish_group(&self.trainers, 2).await;
        for (group, staged) in [(&self.readers, true), (&self.others, false)] {
            for reply in world.together(group, &update(staged)).await {
                assert!(matches!(good(reply), Answer::Committed { .. }));
            }
            assert_eq!(world.held(group), Some(2));
        }
        world.look().await;
        world.notes_are_served();
    }
}

#[test]
fn all_come_over_with_what_they_hold() {
    run(async {
        for shards in [1, 2] {
            let mut scene = ServedGroups::new(2, shards).await;
            scene.are_at(0);
            lock(&scene.world.net).die(0);
            scene.world.pass(OVER).await;
            scene.are_at(1);
            scene.goes_on().await;
        }
    });
}

#[test]
fn all_come_back_to_a_server_that_knows_nothing() {
    run(async {
        for shards in [1, 2] {
            let mut scene = ServedGroups::new(1, shards).await;
            lock(&scene.world.net).die(0);
            scene.world.pass(Span::from_millis(300)).await;
            lock(&scene.world.net).revive(0);
            scene.world.pass(OVER).await;
            scene.are_at(0);
            scene.goes_on().await;
        }
    });
}

/// It goes on at the other server, of which the first learns once it is reached again: then all follow.
#[test]
fn one_that_parts_takes_the_others_along_when_it_is_back() {
    run(async {
        for parted in 0..3 {
            let mut scene = ServedGroups::new(2, 1).await;
            let before = scene.world.held(&[parted]);
            lock(&scene.world.net).part(parted, 0);
            scene.world.pass(Span::from_secs(30)).await;
            assert_eq!(scene.world.held(&[parted]), before, "it has it still");
            lock(&scene.world.net).parted.clear();
            scene.world.pass(OVER).await;
            scene.are_at(1);
            scene.goes_on().await;
        }
    });
}

/// All part from a server that lives, and take the other one, in whatever order they come.
#[test]
fn all_part_from_a_server_that_lives() {
    run(async {
        for first in 0..3 {
            let mut scene = ServedGroups::new(2, 1).await;
            for worker in 0..3 {
                lock(&scene.world.net).part((first + worker) % 3, 0);
                scene.world.pass(Span::from_millis(200)).await;
            }
            scene.world.pass(OVER).await;
            scene.are_at(1);
            scene.goes_on().await;
        }
    });
}

/// Whoever was told is not told again and again.
#[test]
fn a_server_that_knows_of_a_term_is_not_told_for_ever() {
    run(async {
        let mut scene = ServedGroups::new(3, 1).await;
        lock(&scene.world.net).die(0);
        scene.world.pass(OVER).await;
        // One of the other two.
        let at = lock(&scene.world.net).server_of(0).expect("they have come over");
        scene.are_at(at);
        lock(&scene.world.net).revive(0);
        scene.world.pass(Span::from_secs(5)).await;
        let told = lock(&scene.world.net).probes;
        assert!(told > 0);
        scene.world.pass(OVER).await;
        let again = lock(&scene.world.net).probes - told;
        assert_eq!(again, 0, "after {told}");
    });
}

#[test]
fn there_and_back_again() {
    run(async {
        let mut scene = ServedGroups::new(2, 2).await;
        for dies in [0, 1, 0] {
            lock(&scene.world.net).die(dies);
            scene.world.pass(OVER).await;
            scene.are_at(1 - dies);
            lock(&scene.world.net).revive(dies);
            scene.world.pass(Span::from_secs(3)).await;
            scene.are_at(1 - dies);
        }
        scene.goes_on().await;
    });
}

/// The server dies so many events after a group has begun a call, which the next one answers. Whether
/// there was such an event.
async fn dies_after(events: u64, call: &Call) -> bool {
    let mut scene = ServedGroups::new(2, 2).await;
    let group = match call {
        Call::Unpublish => scene.readers.clone(),
        _ => scene.others.clone(),
    };
    if *call == update(true) {
        drop(scene.world.together(&group, &update(false)).await);
        scene.world.give_up(&scene.trainers).await;
        scene.world.publish_group(&scene.trainers, 2).await;
    }
    let world = &mut scene.world;
    group.iter().for_each(|shard| world.begin(*shard, call.clone(), OVER));
    let first = world.happened;
    let (mut died, mut replies) = (false, vec![None, None]);
    while replies.iter().any(Option::is_none) {
        if !died && world.happened - first >= events {
            lock(&world.net).die(0);
            died = true;
        }
        for (reply, shard) in replies.iter_mut().zip(&group) {
            *reply = reply.take().or_else(|| world.workers[*shard].answered());
        }
        world.one().await;
    }
    let answers: Vec<Answer> = replies.into_iter().flatten().map(good).collect();
    assert_eq!(answers[0], answers[1], "{call:?}, died after {events}");
    assert_eq!(world.held(&group).is_none(), *call == Call::Unpublish);
    world.look().await;
    died
}

#[test]
fn a_server_may_die_in_each_call() {
    run(async {
        for call in [update(false), update(true), Call::Unpublish] {
            let mut events = 0;
            while dies_after(events, &call).await {
                events += 1;
            }
            assert!(events > 0);
        }
    });
}
