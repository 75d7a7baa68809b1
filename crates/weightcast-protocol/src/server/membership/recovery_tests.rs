use super::*;
use crate::message::Registration;
use crate::server::Server;
use crate::server::ServerOutput;
use crate::server::props::{CATALOG, SEQ, opening, server, version};
use crate::server::stores::group::Over;
use crate::{
    ConnectionId, ContentDigest, Epoch, ExportId, Mac, OpSeq, Proved, ShardSums, Span, Sum, Term,
    TermProof, Version,
};

const NOW: Time = Time(1_000);
/// The first term of the servers' line.
const ORIGIN: Term = Term(7);

/// A server of a later term than the one that its groups come from.
fn later() -> Server {
    let mut server = server();
    server.terms.own = TermProof { term: Term(9), origin: ORIGIN, mac: Mac::default() };
    server.terms.active = true;
    server
}

fn ticket(incarnation: Incarnation) -> Ticket {
    Ticket {
        proof: TermProof { term: Term(8), origin: ORIGIN, mac: Mac::default() },
        incarnation,
        epoch: Epoch(0),
        held: None,
        mac: Mac::default(),
    }
}

fn refusal(result: Result<(), CallError>) -> String {
    match result {
        Ok(()) => String::new(),
        Err(CallError::GroupBroken { replica, reason }) => {
            assert_eq!(replica, "r");
            reason
        }
        Err(other) => panic!("{other}"),
    }
}

/// A group of `num_shards` whose shards are all here, and have not said what they bring.
fn comes(server: &mut Server, replica: &str, num_shards: u32) -> Incarnation {
    let group = server.prop(replica, num_shards);
    server.at(group).recovering = true;
    server.at(group).registered = false;
    for shard in 0..num_shards {
        let session = server.session(group, shard);
        let stream = ConnectionId(group.number * 10 + u64::from(shard));
        server.connections.bind(session, stream);
    }
    for member in server.at(group).members.values_mut() {
        (member.registration, member.last_seq) = (None, OpSeq(0));
    }
    group
}

#[test]
fn who_comes_over_fits_a_group_that_comes_over_and_lacks_it() {
    const WENT_ON: &str = "it went on, or ended, without this shard";
    const TAKEN: &str = "another group had taken its name when it came over to this server";
    const ENDED: &str = "it ended while it came over to this server";
    const RUN: &str = "it opened before the run that it is to follow was known here";
    let scene = || {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        server.at(group).members.remove(&1);
        let open = Open { shard: 1, rejoins: true, ..opening("policy", "r", 2) };
        (server, group, open, ticket(group))
    };
    let rejoin = |server: &mut Server, open: &Open, ticket: &Ticket| {
        let groups = server.groups.len();
        let reason = refusal(server.membership().rejoin(NOW, open, ticket));
        assert_eq!(server.groups.len(), groups, "none is founded");
        reason
    };
    let (mut server, group, open, own) = scene();
    assert_eq!(rejoin(&mut server, &open, &own), "");
    assert_eq!(rejoin(&mut server, &Open { shard: 0, ..open.clone() }, &own), WENT_ON, "is here");
    assert_eq!(rejoin(&mut server, &Open { num_shards: 3, ..open.clone() }, &own), WENT_ON);
    assert_eq!(rejoin(&mut server, &Open { role: Role::Trainer, ..open.clone() }, &own), WENT_ON);
    assert_eq!(rejoin(&mut server, &open, &Ticket { epoch: Epoch(1), ..own }), WENT_ON);
    let other = Ticket { incarnation: group.next(), ..own };
    assert_eq!(rejoin(&mut server, &open, &other), TAKEN);
    server.at(group).recovering = false;
    assert_eq!(rejoin(&mut server, &open, &own), WENT_ON);
    // Its name is free again, and it is still in the books.
    server.models.get_mut("policy").expect("a prop").replicas.remove("r");
    assert_eq!(rejoin(&mut server, &open, &own), ENDED);
    // Of another line: its runs have the numbers of ours.
    let (mut server, group, open, own) = scene();
    let stray = Ticket { proof: TermProof { origin: Term(3), ..own.proof }, ..own };
    assert_eq!(rejoin(&mut server, &open, &stray), "", "a rollout follows any");
    server.at(group).role = Role::Trainer;
    let trainer = Open { role: Role::Trainer, ..open };
    assert_eq!(rejoin(&mut server, &trainer, &own), "");
    assert_eq!(rejoin(&mut server, &trainer, &stray), RUN);
}

#[test]
fn the_first_shard_founds_its_group_anew_and_the_time_of_the_others_begins() {
    for lease in [Span(10), Span::from_secs(5)] {
        let mut server = later();
        server.config.lease = lease;
        // The window in which all come over began before.
        server.terms.window_until = Some(Time(5));
        let group = Incarnation { term: Term(8), number: 4 };
        let open = Open { rejoins: true, ..opening("policy", "r", 2) };
        assert_eq!(server.membership().rejoin(NOW, &open, &ticket(group)), Ok(()));
        assert!(server.groups[&group].recovering);
        assert_eq!(server.next_timeout(), Some(NOW + lease.scaled(2, 1)));
        assert_eq!(server.timers.iter().copied().collect::<Vec<_>>(), [Timer::Recovery(group)]);
        // The next one finds it, and changes nothing.
        let open = Open { shard: 1, ..open };
        assert_eq!(server.membership().rejoin(NOW + Span(1), &open, &ticket(group)), Ok(()));
        assert_eq!(server.next_timeout(), Some(NOW + lease.scaled(2, 1)));
    }
}

#[test]
fn a_group_that_is_whole_has_no_time_to_keep() {
    for (recovers, breaks) in [(true, true), (false, false)] {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        server.at(group).recovering = recovers;
        server.membership().recovery_timer(group);
        let reason = "not all of its shards came over to this reference server".to_owned();
        let error = CallError::GroupBroken { replica: "r".into(), reason };
        let over = server.groups[&group].over.as_ref().map(|over| over.error.clone());
        assert_eq!(over, breaks.then_some(error));
    }
}

fn registration(shard: u32) -> Registration {
    let layout = ContentDigest([shard as u8; 16]);
    Registration { layout, export: ExportId(shard.into()), bytes: 8 }
}

fn sums(part: u64) -> ShardSums {
    let sum = Sum([part, 0]);
    ShardSums { counted: sum, held: sum, expected: sum }
}

fn holding(number: u64, shard: u64) -> Holding {
    let version = version(number);
    let sums = Some(sums(10 + shard));
    Holding { version, catalog: CATALOG, sums, refused: false, withdrawn: false }
}

/// What the shards of a group bring that holds this version.
fn brings(shards: u32, number: u64) -> Vec<Announcement> {
    let brings = |shard: u32| Announcement {
        answered: OpSeq(5),
        generation: Generation(30 + u64::from(shard)),
        registration: Some(registration(shard)),
        held: Some(holding(number, shard.into())),
        retains: [version(0)].into(),
    };
    (0..shards).map(brings).collect()
}

/// All shards say what they bring; each has it in writing.
fn bring(server: &mut Server, group: Incarnation, brings: &[Announcement]) {
    for (shard, announcement) in (0..).zip(brings) {
        let proved = announcement.held.map(|held| Proved {
            version: held.version,
            catalog: held.catalog,
            sum: None,
        });
        let member = server.at(group).members.get_mut(&shard).expect("a prop");
        member.proved = member.proved.or(proved);
    }
    for (shard, announcement) in (0..).zip(brings) {
        let member = server.member(group, shard);
        server.membership().announce(NOW, member, announcement.clone());
    }
}

/// What was said on each stream of a group, by its last digit.
fn said(server: &mut Server) -> Vec<(u64, ServerMessage)> {
    let said = server.connections.take().into_iter().filter_map(|output| match output {
        ServerOutput::Send { to, message } => Some((to.0 % 10, message)),
        ServerOutput::Disconnect { .. } => None,
    });
    said.collect()
}

fn is_broken(server: &Server, group: Incarnation) -> Option<String> {
    let over = server.groups[&group].over.as_ref()?;
    match &over.error {
        CallError::GroupBroken { reason, .. } => Some(reason.clone()),
        other => panic!("{other}"),
    }
}

#[test]
fn a_group_goes_on_with_what_all_its_shards_bring() {
    let mut server = later();
    let other = server.prop("other", 1);
    let group = comes(&mut server, "r", 3);
    let announced = brings(3, 4);
    bring(&mut server, group, &announced[..2]);
    assert_eq!((said(&mut server), server.counters.recoveries), (vec![], 0));
    assert!(server.groups[&group].recovering && server.groups[&group].held.is_none());
    server.agenda.groups.clear();
    let member = server.member(group, 2);
    let proved = Some(Proved { version: version(4), catalog: CATALOG, sum: None });
    server.at(group).members.get_mut(&2).expect("a prop").proved = proved;
    server.membership().announce(NOW, member, announced[2].clone());
    let recovered = |(_, message): &&(u64, ServerMessage)| *message == ServerMessage::Recovered;
    assert_eq!(said(&mut server).iter().filter(recovered).count(), 3);
    assert_eq!(server.counters.recoveries, 1);
    // Others may not hold the last copy any more.
    assert!(server.agenda.groups.contains(&other));
    let group = &server.groups[&group];
    assert!(!group.recovering && group.registered && group.over.is_none());
    for (shard, member) in &group.members {
        assert_eq!(member.last_seq, OpSeq(5));
        assert_eq!(member.registration, Some(registration(*shard)));
    }
    let held = group.held.as_ref().expect("it brought it");
    assert_eq!((held.version, held.catalog), (version(4), CATALOG));
    assert_eq!(held.generations, [30, 31, 32].map(Generation));
    assert_eq!(held.sums, [(0, sums(10)), (1, sums(11)), (2, sums(12))].into());
    assert!(held.sealed && held.visible && !held.authored);
    assert_eq!(group.replicated, Some(version(4)));
    assert_eq!(server.models["policy"].known[&version(4)].sum, Some(Sum([33, 0])));
}

#[test]
fn shards_that_differ_are_a_broken_group() {
    type Change = fn(&mut Announcement);
    let answered = |number| {
        format!(
            "when the reference server was lost, shard 0 had an answer to call 5, shard 1 to call \
             {number}"
        )
    };
    let versions =
        || "when the reference server was lost, shards 0 and 1 held different versions".to_owned();
    let cases: [(Change, Option<String>); 9] = [
        (|_| (), None),
        (|shard| shard.answered = OpSeq(4), Some(answered(4))),
        (|shard| shard.answered = OpSeq(6), Some(answered(6))),
        (|shard| shard.held.as_mut().unwrap().version = version(9), Some(versions())),
        (|shard| shard.held.as_mut().unwrap().catalog = ContentDigest([9; 16]), Some(versions())),
        (|shard| shard.held = None, Some(versions())),
        (|shard| shard.generation = Generation(99), None),
        (|shard| shard.held.as_mut().unwrap().sums = None, None),
        (|shard| (shard.held, shard.registration) = (None, None), Some(versions())),
    ];
    for (change, expected) in cases {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        let mut announced = brings(2, 4);
        change(&mut announced[1]);
        bring(&mut server, group, &announced);
        assert_eq!(is_broken(&server, group), expected, "{announced:?}");
    }
    // One that is registered and one that is not, neither of which holds anything.
    for shard in 0..2 {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        let mut announced = brings(2, 4);
        announced.iter_mut().for_each(|shard| shard.held = None);
        announced[shard].registration = None;
        bring(&mut server, group, &announced);
        assert_eq!(is_broken(&server, group), Some(versions()));
    }
}

#[test]
fn a_group_that_holds_nothing_comes_over_with_its_memory_or_without() {
    for registered in [false, true] {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        let mut announced = brings(2, 4);
        for shard in &mut announced {
            shard.held = None;
            shard.registration = shard.registration.filter(|_| registered);
        }
        bring(&mut server, group, &announced);
        let group = &server.groups[&group];
        assert_eq!(
            (group.registered, group.held.is_some(), group.recovering),
            (registered, false, false)
        );
        assert_eq!(group.replicated, None);
        assert!(server.models["policy"].known.is_empty());
    }
}

/// A model's newest run is the newest that came over: a group's own run, or the run of a held
/// version.
#[test]
fn runs_only_become_newer() {
    for known in 0..4 {
        for own in 0..4 {
            for held in [None, Some(0), Some(1), Some(2), Some(3)] {
                let mut server = later();
                let group = comes(&mut server, "r", 1);
                server.models.get_mut("policy").expect("a prop").epoch = Epoch(known);
                server.at(group).epoch = Epoch(own);
                let mut announced = brings(1, 4);
                let of = |epoch| Version { epoch: Epoch(epoch), number: 4 };
                announced[0].held = held.map(|run| Holding { version: of(run), ..holding(4, 0) });
                bring(&mut server, group, &announced);
                let expected = known.max(own).max(held.unwrap_or(0));
                assert_eq!(
                    server.models["policy"].epoch,
                    Epoch(expected),
                    "{known} {own} {held:?}"
                );
            }
        }
    }
}

#[test]
fn a_copy_is_sealed_again_once_all_its_digests_are_there() {
    for missing in [None, Some(0), Some(1), Some(2)] {
        let mut server = later();
        let group = comes(&mut server, "r", 3);
        let mut announced = brings(3, 4);
        if let Some(shard) = missing {
            announced[shard].held.as_mut().expect("it holds it").sums = None;
        }
        bring(&mut server, group, &announced);
        let held = server.groups[&group].held.as_ref().expect("it brought it");
        assert_eq!(held.sealed, missing.is_none());
        assert!(held.visible && held.fenced.is_none());
        assert_eq!(held.sums.len(), if missing.is_none() { 3 } else { 2 });
        assert!(
            (0..3).all(|shard| held.sums.contains_key(&shard) == (missing != Some(shard as usize)))
        );
        let known = server.models["policy"].known[&version(4)];
        assert_eq!(known.sum.is_some(), missing.is_none(), "what is not whole defines nothing");
    }
}

/// It does not matter which shard announces that the copy was refused or withdrawn.
#[test]
fn what_one_shard_had_refused_or_withdrawn_is_shown_to_nobody() {
    for shard in 0..3 {
        for refused in [false, true] {
            let mut server = later();
            let group = comes(&mut server, "r", 3);
            let mut announced = brings(3, 4);
            let held = announced[shard].held.as_mut().expect("it holds it");
            (held.refused, held.withdrawn) = (refused, !refused);
            bring(&mut server, group, &announced);
            let held = server.groups[&group].held.as_ref().expect("it brought it");
            assert_eq!((held.visible, held.fenced.is_some()), (false, refused));
            assert!(server.models["policy"].visible.is_empty());
        }
    }
}

/// A sealed sum comes over in the tickets of those shards that got a ticket after the seal.
#[test]
fn what_was_sealed_is_not_defined_again() {
    for (of, knows) in [(0, false), (1, false), (2, false), (0, true)] {
        for sum in [33, 34] {
            let mut server = later();
            let group = comes(&mut server, "r", 3);
            let sum = Some(Sum([sum, 0]));
            let proved = Some(Proved { version: version(4), catalog: CATALOG, sum });
            if knows {
                let content = Content { catalog: CATALOG, sum, since: Observed(Time(0)) };
                server.copies().remember("policy", version(4), content);
            } else {
                server.at(group).members.get_mut(&of).expect("a prop").proved = proved;
            }
            bring(&mut server, group, &brings(3, 4));
            assert_eq!(server.models["policy"].known[&version(4)].sum, sum, "it stays");
            let held = server.groups[&group].held.as_ref().expect("it brought it");
            let same = sum == Some(Sum([33, 0]));
            assert_eq!((held.sealed, held.fenced.is_some(), held.visible), (same, !same, same));
        }
    }
    // Nor are its tensors.
    let mut server = later();
    let group = comes(&mut server, "r", 1);
    let content = Content { catalog: ContentDigest([9; 16]), sum: None, since: Observed(Time(0)) };
    server.copies().remember("policy", version(4), content);
    bring(&mut server, group, &brings(1, 4));
    let held = server.groups[&group].held.as_ref().expect("it brought it");
    assert!(held.fenced.is_some() && !held.visible);
    assert_eq!(server.models["policy"].known[&version(4)], content);
}

#[test]
fn what_is_said_again_is_answered_again_and_what_is_said_late_breaks_the_group() {
    const LATE: &str = "shard 1 lost its lease, and has given up what it was doing";
    let scene = || {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        bring(&mut server, group, &brings(2, 4));
        said(&mut server);
        let again = brings(2, 4).pop().expect("two");
        let member = server.member(group, 1);
        (server, group, member, again)
    };
    let (mut server, group, member, mut again) = scene();
    server.membership().announce(NOW, member, again.clone());
    assert_eq!(said(&mut server), [(1, ServerMessage::Recovered)], "to that shard alone");
    // It may have digested more since, or been answered more.
    again.held.as_mut().expect("it holds it").sums = None;
    again.answered = OpSeq(6);
    server.membership().announce(NOW, member, again.clone());
    assert_eq!(said(&mut server), [(1, ServerMessage::Recovered)]);
    assert_eq!((server.counters.recoveries, is_broken(&server, group)), (1, None));
    for generation in [30, 32] {
        let (mut server, group, member, again) = scene();
        let moved = Announcement { generation: Generation(generation), ..again };
        server.membership().announce(NOW, member, moved.clone());
        assert_eq!(is_broken(&server, group).as_deref(), Some(LATE));
        // Whoever comes after that is told as well, and nobody else.
        let told = said(&mut server);
        let error = server.groups[&group].over.as_ref().expect("just seen").error.clone();
        let broken = ServerMessage::Broken { error };
        assert_eq!(told, [(0, broken.clone()), (1, broken.clone())]);
        server.membership().announce(NOW, member, moved);
        assert_eq!(said(&mut server), [(1, broken)]);
    }
    // One that never came over has nothing to announce.
    let (mut server, group, member, again) = scene();
    server.at(group).members.get_mut(&1).expect("a prop").announced = None;
    server.membership().announce(NOW, member, again);
    assert_eq!(is_broken(&server, group).as_deref(), Some(LATE));
}

#[test]
fn a_group_that_is_at_its_end_does_not_come_over() {
    for closing in [false, true] {
        let mut server = later();
        let group = comes(&mut server, "r", 2);
        let error = CallError::Misuse { detail: "it is closed".into() };
        server.at(group).over = Some(Over { error: error.clone(), closing });
        bring(&mut server, group, &brings(2, 4));
        let broken = |shard| (shard, ServerMessage::Broken { error: error.clone() });
        assert_eq!(said(&mut server), [broken(0), broken(1)]);
        assert!(server.groups[&group].recovering && server.counters.recoveries == 0);
    }
}

/// A call that was not answered is made again, under the next number.
#[test]
fn calls_go_on_after_the_last_that_was_answered() {
    let mut server = later();
    let group = comes(&mut server, "r", 2);
    bring(&mut server, group, &brings(2, 4));
    assert!(server.groups[&group].members.values().all(|member| member.last_seq.next() > SEQ));
    assert_eq!((server.groups[&group].active, server.groups[&group].transactions.len()), (None, 0));
}
