//! Whoever has the job's token may say anything of the past: what no server has given in writing
//! changes nothing, and whoever was honest goes on (T6).

use std::collections::BTreeSet;

use crate::cluster::*;
use weightcast_protocol::message::{
    Announcement, Answer, Call, ClientMessage, EpochPolicy, Holding, Open, Registration, Role,
    ServerMessage,
};
use weightcast_protocol::server::{Server, ServerConfig, ServerOutput};
use weightcast_protocol::session::SessionState;
use weightcast_protocol::{
    CallError, ConnectionId, ContentDigest, Epoch, ExportId, Generation, Incarnation, Mac, OpSeq,
    Proved, SessionId, Span, Term, TermProof, Ticket, Version,
};

const FAILOVER: Span = Span::from_secs(7);
const LIES: [u64; 3] = [1 << 40, (1 << 62) - 1, u64::MAX];

/// A client without the library: says what it likes, on streams of its own.
struct Hostile {
    stream: ConnectionId,
    server: usize,
}

impl Hostile {
    fn at(server: usize) -> Self {
        Self { stream: ConnectionId((1 << 50) + server as u64), server }
    }

    /// What the server says to it upon this.
    fn say(&self, cluster: &mut Cluster, message: ClientMessage) -> Vec<ServerMessage> {
        let (now, stream) = (cluster.now, self.stream);
        let machine = cluster.machine(self.server);
        machine.handle(now, stream, message);
        let outputs: Vec<_> = std::iter::from_fn(|| machine.poll_output()).collect();
        let mut heard = Vec::new();
        for output in outputs {
            match output {
                ServerOutput::Send { to, message } if to == stream => heard.push(message),
                other => cluster.obey_server(other),
            }
        }
        cluster.run();
        heard
    }

    fn open(&self, cluster: &mut Cluster, open: Open) -> ServerMessage {
        self.say(cluster, ClientMessage::Open(open)).pop().expect("an answer")
    }

    /// Opens, and is let in.
    fn enter(&self, cluster: &mut Cluster, open: Open) -> Ticket {
        match self.open(cluster, open) {
            ServerMessage::Opened { ticket, .. } => ticket,
            other => panic!("{other:?}"),
        }
    }
}

/// A session of the intruder's own.
fn intruder(replica: &str, role: Role) -> Open {
    Open { session: SessionId(1 << 100), activate: true, ..open(replica, 0, 1, role) }
}

fn forged(term: u64, incarnation: Incarnation, epoch: u64) -> Ticket {
    let proof = TermProof { term: Term(term), origin: Term(term), mac: Mac([7; 32]) };
    let version = Version { epoch: Epoch(epoch), number: epoch };
    let held = Proved { version, catalog: CATALOG, sum: None };
    Ticket { proof, incarnation, epoch: Epoch(epoch), held: Some(held), mac: Mac([7; 32]) }
}

fn nothing() -> Announcement {
    let generation = Generation(1);
    let retains = BTreeSet::new();
    Announcement { answered: OpSeq(1), generation, registration: None, held: None, retains }
}

fn registered() -> Option<Registration> {
    Some(Registration { layout: ContentDigest([3; 16]), export: ExportId(3), bytes: 8 })
}

fn holding(version: Version) -> Option<Holding> {
    let sums = Some(sums(11));
    Some(Holding { version, catalog: CATALOG, sums, refused: false, withdrawn: false })
}

/// A trainer and a rollout that have published and read version 1.
fn working(servers: u32) -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::with_servers(servers);
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    (cluster, trainer, rollout)
}

/// The trainer publishes, the rollout follows.
fn goes_on(cluster: &mut Cluster, trainer: &[usize], rollout: &[usize], number: u64) {
    cluster.advance(Span::from_secs(11)); // until nobody comes over any more
    cluster.call_all(trainer, |_| Call::Unpublish);
    let published = cluster.publish(trainer, number, number * 11);
    assert!(matches!(published[0], Ok(Answer::Published { .. })), "{published:?}");
    let read = cluster.call_all(rollout, |_| update());
    assert_eq!(committed(&read[0]), Some(number), "{read:?}");
    assert_eq!(cluster.content(rollout), number * 11);
}

/// The refusal says what to do.
fn is_refused(said: &ServerMessage) {
    let ServerMessage::Refused { error, retry: false } = said else { panic!("{said:?}") };
    assert!(matches!(error, CallError::GroupBroken { .. }), "{error}");
    assert!(error.to_string().contains("open it again"), "{error}");
}

fn is_broken(said: &[ServerMessage]) {
    let broken = |m: &ServerMessage| matches!(m, ServerMessage::Broken { .. });
    assert!(said.iter().any(broken), "{said:?}");
}

#[test]
fn a_term_that_nobody_had_ends_none() {
    let (mut cluster, trainer, rollout) = working(2);
    let term = cluster.server.term();
    for lie in LIES {
        for server in 0..2 {
            let (now, proof) = (cluster.now, forged(lie, Incarnation::default(), 0).proof);
            let before = cluster.machine(server).term();
            cluster.machine(server).handle_probe(now, proof);
            assert_eq!(cluster.machine(server).term(), before);
        }
    }
    assert_eq!(cluster.server.term(), term);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    assert_eq!(cluster.machine(1).term().step(), term.step() + 1, "one step");
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

#[test]
fn a_past_that_no_server_has_written_is_refused_wherever_it_is_told() {
    let (mut cluster, trainer, rollout) = working(2);
    let own = cluster.clients[trainer[0]].session.lease().unwrap().incarnation;
    let lies = |hostile: &Hostile, cluster: &mut Cluster| {
        for lie in LIES {
            for incarnation in [own, Incarnation { term: Term(lie), number: lie }] {
                for replica in ["trainer", "rollout", "nobody"] {
                    let ticket = Some(forged(lie, incarnation, lie));
                    let asks = intruder(replica, Role::Trainer);
                    is_refused(
                        &hostile.open(cluster, Open { ticket, rejoins: true, ..asks.clone() }),
                    );
                    is_refused(&hostile.open(cluster, Open { ticket, ..asks.clone() }));
                    is_refused(&hostile.open(cluster, Open { rejoins: true, ..asks }));
                }
            }
        }
    };
    lies(&Hostile::at(0), &mut cluster);
    lies(&Hostile::at(1), &mut cluster);
    assert_eq!(cluster.machine(1).term(), Term(0), "it does not begin to act on a lie");
    cluster.crash(0);
    cluster.advance(FAILOVER);
    lies(&Hostile::at(1), &mut cluster);
    assert_eq!(cluster.backups[0].snapshot(cluster.now).models["policy"].epoch, RUN);
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

#[test]
fn a_ticket_is_of_no_use_to_another_shard_or_session() {
    let (mut cluster, trainer, rollout) = working(2);
    let stolen = *cluster.clients[trainer[0]].session.ticket().unwrap();
    cluster.crash(0);
    cluster.advance(Span::from_secs(5));
    let hostile = Hostile::at(1);
    let asks = Open { ticket: Some(stolen), rejoins: true, ..intruder("trainer", Role::Trainer) };
    let owner = SessionId(trainer[0] as u128 + 1);
    for open in [
        asks.clone(),
        Open { session: owner, replica: "other".into(), ..asks.clone() },
        Open { session: owner, num_shards: 2, ..asks.clone() },
        Open { session: owner, role: Role::Rollout, ..asks.clone() },
        Open { session: owner, model: "other".into(), ..asks.clone() },
        Open { rejoins: false, ..asks },
    ] {
        is_refused(&hostile.open(&mut cluster, open));
    }
    cluster.advance(FAILOVER);
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

/// Somebody who was a member at the first server, and comes to the second one.
fn member_that_comes_over(cluster: &mut Cluster, role: Role) -> (Hostile, Ticket) {
    let asks = intruder("intruder", role);
    let ticket = Hostile::at(0).enter(cluster, asks.clone());
    cluster.crash(0);
    cluster.advance(FAILOVER);
    let there = Hostile::at(1);
    let ticket = there.enter(cluster, Open { ticket: Some(ticket), rejoins: true, ..asks });
    (there, ticket)
}

#[test]
fn a_member_cannot_say_that_it_held_what_no_server_saw() {
    for lie in LIES {
        let (mut cluster, trainer, rollout) = working(2);
        let (hostile, _) = member_that_comes_over(&mut cluster, Role::Rollout);
        let held = holding(Version { epoch: Epoch(lie), number: lie });
        let claims = Announcement { registration: registered(), held, ..nothing() };
        is_broken(&hostile.say(&mut cluster, ClientMessage::Announce(claims)));
        let books = cluster.backups[0].snapshot(cluster.now);
        assert_eq!(books.models["policy"].epoch, RUN);
        assert_eq!(cluster.list(&rollout).versions.len(), 1);
        goes_on(&mut cluster, &trainer, &rollout, 2);
        // The next run is the next one.
        let next = Open { epoch: EpochPolicy::New, ..open("next", 0, 1, Role::Trainer) };
        let next = cluster.start(next);
        cluster.advance(Span::from_secs(1));
        assert!(cluster.clients[next].session.lease().unwrap().epoch > RUN);
    }
}

#[test]
fn a_copy_in_memory_that_is_not_registered_is_none() {
    let (mut cluster, trainer, rollout) = working(2);
    let asks = intruder("intruder", Role::Trainer);
    let first = Hostile::at(0);
    first.enter(&mut cluster, asks.clone());
    let deadline = Span::from_secs(9);
    let call = |seq, call| ClientMessage::Call { seq: OpSeq(seq), deadline, call };
    first.say(&mut cluster, call(1, register(0)));
    let said = first.say(&mut cluster, call(2, publish(9)));
    let ticket = said.iter().find_map(|message| match message {
        ServerMessage::Vouched { ticket } => Some(*ticket),
        _ => None,
    });
    let version = ticket.unwrap().held.unwrap().version;
    cluster.crash(0);
    cluster.advance(FAILOVER);
    let second = Hostile::at(1);
    second.enter(&mut cluster, Open { ticket, rejoins: true, ..asks });
    let claims = Announcement { held: holding(version), ..nothing() };
    is_broken(&second.say(&mut cluster, ClientMessage::Announce(claims)));
    goes_on(&mut cluster, &trainer, &rollout, 10);
}

#[test]
fn who_comes_over_first_does_not_say_anew_what_a_version_is() {
    let (mut cluster, trainer, rollout) = working(2);
    let liar = cluster.rollout("liar", 1);
    cluster.call_all(&liar, |_| update());
    let ticket = cluster.clients[liar[0]].session.ticket().copied();
    let held = ticket.unwrap().held.unwrap();
    assert_eq!(held.sum, Some(sums(11).counted));
    cluster.kill(liar[0]);
    cluster.crash(0);
    cluster.down.insert(1);
    cluster.advance(Span::from_secs(5));
    cluster.down.remove(&1);
    // In the place of its own session, before anybody else is there.
    let hostile = Hostile::at(1);
    let session = SessionId(liar[0] as u128 + 1);
    let asks = open("liar", 0, 1, Role::Rollout);
    hostile.enter(&mut cluster, Open { session, ticket, rejoins: true, ..asks });
    let other = Holding { sums: Some(sums(12)), ..holding(held.version).unwrap() };
    let claims = Announcement { registration: registered(), held: Some(other), ..nothing() };
    let said = hostile.say(&mut cluster, ClientMessage::Announce(claims));
    let fenced = |message: &ServerMessage| matches!(message, ServerMessage::Fenced { .. });
    assert!(said.iter().any(fenced), "{said:?}");
    cluster.advance(FAILOVER);
    assert_eq!(cluster.clients[trainer[0]].session.state(), SessionState::Holding);
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

#[test]
fn a_number_of_calls_that_nobody_made_hurts_the_liar_alone() {
    let (mut cluster, trainer, rollout) = working(2);
    let (hostile, _) = member_that_comes_over(&mut cluster, Role::Rollout);
    let claims = Announcement { answered: OpSeq(u64::MAX), ..nothing() };
    let said = hostile.say(&mut cluster, ClientMessage::Announce(claims));
    assert_eq!(said, [ServerMessage::Recovered]);
    for seq in [u64::MAX, 0, 1, u64::MAX - 1, u64::MAX] {
        let call = Call::List;
        let deadline = Span::from_secs(9);
        hostile.say(&mut cluster, ClientMessage::Call { seq: OpSeq(seq), deadline, call });
    }
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

#[test]
fn what_a_server_knows_itself_it_is_not_told() {
    let (mut cluster, trainer, rollout) = working(1);
    let hostile = Hostile::at(0);
    let asks = intruder("intruder", Role::Trainer);
    let ticket = Some(hostile.enter(&mut cluster, asks.clone()));
    hostile.say(&mut cluster, ClientMessage::Close { deadline: Span(0) });
    is_refused(&hostile.open(&mut cluster, Open { ticket, rejoins: true, ..asks }));
    goes_on(&mut cluster, &trainer, &rollout, 2);
}

/// Lives before and after a restart, whose first terms come in either order.
const LIVES: [(u64, u64); 2] = [(1, 2), (2, 1)];

/// The first server restarts, and everybody notices.
fn restart(cluster: &mut Cluster, life: u64) {
    cluster.reachable = false;
    for client in 0..cluster.clients.len() {
        cluster.break_stream(client);
    }
    cluster.server = Server::new(ServerConfig { life, paranoid: true, ..Default::default() });
    cluster.reachable = true;
}

fn one_server(life: u64) -> Cluster {
    let mut cluster = Cluster::with(ServerConfig { life, ..Default::default() });
    cluster.reconnect = Span::from_secs(60);
    cluster
}

#[test]
fn a_restarted_server_that_a_newcomer_finds_first_learns_all_again() {
    for (before, after) in LIVES {
        let mut cluster = one_server(before);
        let trainer = cluster.trainer("trainer", 2);
        let rollout = cluster.rollout("rollout", 1);
        cluster.publish(&trainer, 1, 11);
        cluster.call_all(&rollout, |_| update());
        let first = cluster.server.term();
        restart(&mut cluster, after);
        // It acts for somebody who knows of no term before the others are back.
        let newcomer = cluster.rollout("newcomer", 1);
        assert_ne!(cluster.server.term(), first, "no two terms are the same");
        cluster.advance(FAILOVER);
        for client in trainer.iter().chain(&rollout).chain(&newcomer) {
            assert_eq!(cluster.clients[*client].closed, None, "{before} {after}");
            let lease = cluster.clients[*client].session.lease().unwrap();
            assert_eq!(lease.term, cluster.server.term());
        }
        assert_eq!(cluster.list(&rollout).versions[&version(before, 1)].len(), 2);
        goes_on(&mut cluster, &trainer, &rollout, 2);
        assert_eq!(committed(&cluster.call_all(&newcomer, |_| update())[0]), Some(2));
    }
}

#[test]
fn a_run_that_began_at_a_server_that_knew_of_none_gives_way_to_the_one_before() {
    for (before, after) in LIVES {
        let mut cluster = one_server(before);
        let starts =
            |name: &str| Open { epoch: EpochPolicy::New, ..open(name, 0, 1, Role::Trainer) };
        let trainer = vec![cluster.start(starts("trainer"))];
        let rollout = cluster.rollout("rollout", 1);
        cluster.call_all(&trainer, register);
        cluster.publish(&trainer, 1, 11);
        let epoch = cluster.clients[trainer[0]].session.lease().unwrap().epoch;
        restart(&mut cluster, after);
        let young = vec![cluster.start(starts("young"))];
        cluster.call_all(&young, register);
        cluster.publish(&young, 1, 99);
        cluster.advance(FAILOVER);
        let closed = &cluster.clients[young[0]].closed;
        assert!(matches!(closed, Some(Some(CallError::GroupBroken { .. }))), "{closed:?}");
        assert_eq!(cluster.clients[trainer[0]].session.state(), SessionState::Holding);
        cluster.advance(Span::from_secs(11));
        assert_eq!(committed(&cluster.call_all(&rollout, |_| update())[0]), Some(1));
        assert_eq!(cluster.content(&rollout), 11, "not what the young one called version 1");
        let again = cluster.start(starts("young"));
        cluster.advance(Span::from_secs(1));
        assert!(cluster.clients[again].session.lease().unwrap().epoch > epoch);
    }
}

/// Publishes version 1 of a new trainer, and says which run that belongs to.
fn published_run(cluster: &mut Cluster, name: &str, epoch: EpochPolicy) -> (usize, Epoch) {
    let trainer = cluster.start(Open { epoch, ..open(name, 0, 1, Role::Trainer) });
    cluster.advance(Span::from_secs(15));
    cluster.call_all(&[trainer], register);
    let [Ok(Answer::Published { version })] = cluster.publish(&[trainer], 1, 11)[..] else {
        panic!("it may publish")
    };
    (trainer, version.epoch)
}

/// A program may remember a version when the server is lost, and with it everybody who could tell the
/// next server of the run.
#[test]
fn a_run_that_nobody_tells_of_is_not_counted_again() {
    let policies = [EpochPolicy::Current, EpochPolicy::New];
    for (life, (first, second)) in
        (3..).zip(policies.map(|one| policies.map(|two| (one, two))).concat())
    {
        let mut cluster = one_server(1);
        let (trainer, before) = published_run(&mut cluster, "before", first);
        cluster.kill(trainer);
        restart(&mut cluster, life);
        let (_, after) = published_run(&mut cluster, "after", second);
        assert_ne!(before, after, "{first:?} {second:?}");
    }
}

/// A rollout knows the term, and nothing of the run that began after it had opened.
#[test]
fn a_run_of_a_later_term_is_later_than_all_of_before() {
    let mut cluster = one_server(1 << 20);
    let rollout = cluster.rollout("rollout", 1);
    let (trainer, before) = published_run(&mut cluster, "before", EpochPolicy::New);
    cluster.kill(trainer);
    restart(&mut cluster, 7);
    cluster.advance(FAILOVER);
    assert_eq!(cluster.clients[rollout[0]].session.state(), SessionState::Empty);
    let (_, after) = published_run(&mut cluster, "after", EpochPolicy::Current);
    assert!(before < after, "{before} {after}");
}

/// The numbers of runs of two lines are in no order, so one must not count in the other.
#[test]
fn a_rollout_of_another_line_begins_no_run() {
    let mut cluster = one_server(0xFFFF_0000);
    let (trainer, before) = published_run(&mut cluster, "before", EpochPolicy::Current);
    let rollout = cluster.rollout("rollout", 2);
    cluster.kill(trainer);
    rollout.iter().for_each(|shard| cluster.stand_still(*shard));
    restart(&mut cluster, 1);
    let (trainer, after) = published_run(&mut cluster, "after", EpochPolicy::Current);
    assert!(before > after, "{before} {after}");
    rollout.iter().for_each(|shard| cluster.go_on(*shard));
    cluster.advance(FAILOVER);
    for shard in rollout {
        let session = &cluster.clients[shard].session;
        assert_eq!(session.state(), SessionState::Empty, "a whole group, which holds nothing");
        assert_eq!(session.lease().map(|lease| lease.term), Some(cluster.server.term()));
    }
    assert_eq!(cluster.server.snapshot(cluster.now).models["policy"].epoch, after);
    cluster.call_all(&[trainer], |_| Call::Unpublish);
    assert!(cluster.publish(&[trainer], 2, 22)[0].is_ok(), "its run is not over");
}
