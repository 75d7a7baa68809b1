use super::*;
use crate::message::{Call, ServerMessage};
use crate::server::Server;
use crate::server::ServerOutput;
use crate::server::props::{SEQ, server, version};
use crate::server::stores::model::Model;
use crate::server::stores::terms::Terms;
use crate::{ConnectionId, ContentDigest, Term};

/// A server of which every book has something in it.
fn busy() -> Server {
    let mut server = server();
    server.terms.own = TermProof { term: Term(5), origin: Term(5), ..TermProof::default() };
    (server.terms.seen, server.terms.active) = (server.terms.own, true);
    let [a, b, reader] = ["a", "b", "reader"].map(|name| server.prop(name, 1));
    [a, b].iter().for_each(|holder| server.holds(*holder, version(1)));
    server.reads(reader, version(1), &[a]);
    server.models.get_mut("policy").expect("a prop").retention.versions = 1;
    server.durability().review_claims(Time(0), "policy");
    for (group, stream) in [(a, 1), (reader, 2)] {
        let (session, stream) = (server.session(group, 0), ConnectionId(stream));
        server.connections.bind(session, stream);
    }
    // One model was forgotten, one will be.
    server.models.insert("old".into(), Model::default());
    server.models.vacant.insert("old".into());
    server.membership().free_models();
    server.models.insert("left".into(), Model::default());
    server.models.vacant.insert("left".into());
    let digest = ContentDigest([3; 16]);
    server.put_manifest(Time(0), digest, vec![0; 9]).expect("there is room");
    for layout in [ContentDigest([0; 16]); 3] {
        server.blobs.retain(layout); // what the three are registered with
    }
    server.transfers().drain_until(a, Time(9));
    server.timers.set(Time(9), Timer::Call(reader, SEQ));
    server.timers.set(Time(9), Timer::Window);
    (server.terms.window_until, server.terms.fresh_until) = (Some(Time(9)), Some(Time(9)));
    server.agenda.groups.insert(a);
    server.agenda.models.insert("policy".into());
    server.has_called(b, Call::List);
    server
}

/// Names every field of `Server`. A new field has to state here whether it outlives a term.
#[test]
fn a_server_that_steps_down_has_forgotten_its_clients_and_all_that_they_brought() {
    let mut server = busy();
    let full = [server.challenges.len(), server.edges.all().count(), server.agenda.groups.len()];
    assert!(full.iter().all(|count| *count > 0) && server.models.high_water.is_some());
    assert!(!server.agenda.models.is_empty() && !server.models.vacant.is_empty());
    server.connections.take();
    server.membership().step_down();
    let Server {
        config: _,
        terms,
        models,
        groups,
        sessions,
        connections,
        edges,
        blobs,
        timers,
        counters: _,
        durations: _,
        losses: _,
        challenges,
        numbers: _,
        agenda,
        unsettled: _,
        stages: _,
    } = &mut server;
    let Terms { own, active, seen, told: _, fresh_until, window_until } = terms;
    assert!(!*active && own.term == Term(5) && seen.term == Term(5), "terms are for ever");
    assert_eq!((*fresh_until, *window_until), (None, None));
    assert!(models.is_empty() && models.vacant.is_empty() && models.high_water.is_none());
    assert!(groups.is_empty() && sessions.is_empty() && connections.is_empty());
    assert!(edges.all().next().is_none() && edges.crossing().next().is_none());
    assert!(edges.filling("policy", version(1)).next().is_none());
    assert!(challenges.is_empty() && agenda.groups.is_empty() && agenda.models.is_empty());
    // Manifests stay for those who come back; nobody refers to them.
    assert_eq!(blobs.validate(std::iter::empty()), Ok(()));
    assert!(blobs.contains(&ContentDigest([3; 16])));
    let kept: Vec<Timer> = timers.iter().copied().collect();
    assert_eq!(kept, [Timer::Blob(ContentDigest([3; 16]))]);
    let superseded = |to| ServerOutput::Send { to, message: ServerMessage::Superseded };
    assert_eq!(connections.take(), [superseded(ConnectionId(1)), superseded(ConnectionId(2))]);
    assert_eq!(server.validate(), Ok(()));
}

#[test]
fn the_end_of_the_window_has_all_look_again() {
    let mut server = busy();
    server.models.get_mut("policy").expect("a prop").recovers = true;
    server.agenda.clear();
    server.membership().window_timer();
    assert!(server.models.values().all(|model| !model.recovers) && !server.books().recovers());
    assert!(server.agenda.groups.iter().eq(server.groups.ids()));
    assert!(server.agenda.models.iter().eq(server.models.ids()));
}

/// One step after the later of two terms: the latest that was proved, and the server's own last
/// one.
#[test]
fn a_server_acts_one_step_after_all_that_it_knows() {
    let of = |step: u64| step << 26;
    for seen in 0..4 {
        for own in 0..4 {
            for index in [0, 1] {
                let mut server = server();
                server.config.index = index;
                let origin = Term(7);
                server.terms.seen =
                    TermProof { term: Term(of(seen)), origin, ..TermProof::default() };
                server.terms.own =
                    TermProof { term: Term(of(own)), origin: Term(8), ..server.terms.seen };
                server.membership().activate(Time(100));
                assert_eq!(server.terms.own.term.step(), seen.max(own) + 1, "{seen}, {own}");
                assert_eq!(server.terms.seen, server.terms.own);
                let until = Time(100) + server.config.lease.scaled(2, 1);
                let follows = seen > 0;
                assert_eq!(
                    server.terms.own.origin,
                    if follows { origin } else { server.terms.own.term }
                );
                assert_eq!(server.terms.window_until, follows.then_some(until));
                assert_eq!(server.terms.fresh_until, (!follows).then_some(until));
                assert_eq!(server.next_timeout(), follows.then_some(until));
                assert_eq!(server.numbers.last_incarnation.term, server.terms.own.term);
            }
        }
    }
}

/// A fresh server that is shown another line goes over to that line, and acts above all terms of
/// both.
#[test]
fn of_two_lines_the_one_that_was_shown_goes_on_above_all_terms_of_both() {
    for (own, shown) in [(3, 1), (3, 2), (3, 4), (3, 9)] {
        let mut server = server();
        let of = |step: u64, origin| TermProof {
            term: Term(step << 26),
            origin: Term(origin),
            ..TermProof::default()
        };
        (server.terms.own, server.terms.active) = (of(own, 7), true);
        (server.terms.seen, server.terms.fresh_until) = (server.terms.own, Some(Time(10)));
        server.membership().hear_of(Time(9), of(shown, 8));
        assert!(!server.terms.active, "{own}, {shown}");
        assert_eq!(
            (server.terms.seen.term.step(), server.terms.seen.origin),
            (own.max(shown), Term(8))
        );
        server.membership().activate(Time(9));
        assert_eq!(
            (server.terms.own.term.step(), server.terms.own.origin),
            (own.max(shown) + 1, Term(8))
        );
    }
}

#[test]
fn a_server_begins_to_act_for_whoever_asks_it_to_and_may() {
    let version = version(1);
    for role in [Role::Trainer, Role::Rollout, Role::Offload(version), Role::Seed(version)] {
        for (activate, rejoins, defers) in [
            (true, false, false),
            (true, true, false),
            (false, true, false),
            (false, false, false),
            (true, true, true),
        ] {
            let mut server = server();
            let told = TermProof { term: Term(1 << 26), ..TermProof::default() };
            if defers {
                (server.terms.seen, server.terms.told) = (told, (told.term, Time(50)));
            }
            let open = crate::server::props::opening("policy", "r", 1);
            let open = Open { role, activate, rejoins, ..open };
            let asked = matches!(role, Role::Offload(_) | Role::Seed(_));
            let acts = activate && !defers && (rejoins || !asked);
            assert_eq!(
                server.membership().takes(Time(50), &open),
                acts,
                "{role:?} {activate} {rejoins}"
            );
            assert_eq!(server.terms.active, acts);
            // One that acts already takes whoever comes, unless it knows of a later one.
            server.terms.active = true;
            assert_eq!(server.membership().takes(Time(50), &open), !defers);
        }
    }
}
