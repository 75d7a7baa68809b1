use super::*;
use crate::server::Server;
use crate::server::props::{server, version};
use crate::server::stores::group::Over;
use crate::{Generation, Incarnation, ShardSums, Time};

/// A reader of version 2 that holds version 1 unlisted, its own reader, and its sources.
fn reading(phase: Phase, staged: bool) -> (Server, [Incarnation; 4]) {
    let mut server = server();
    let groups = ["reader", "behind", "a", "b"].map(|name| server.prop(name, 1));
    let [reader, behind, a, b] = groups;
    [a, b].iter().for_each(|source| server.holds(*source, version(2)));
    if phase == Phase::Draining || staged {
        server.holds(reader, version(1));
        server.copies().hide(reader);
    }
    server.reads(reader, version(2), &[a, b]);
    server.relays(reader);
    let transfer = server.groups.transfer(reader).expect("it reads");
    (transfer.phase, transfer.staged) = (phase, staged);
    transfer.prepared.insert(0, (Generation(20), ShardSums::default()));
    server.reads_as(behind, reader);
    server.transfers().drain_until(reader, Time(9));
    server.durability().hold_until(Time(0), reader, Time(9));
    server.agenda.clear();
    (server, groups)
}

impl Server {
    /// The reader reads what a relay is being filled with.
    fn reads_as(&mut self, reader: Incarnation, relay: Incarnation) {
        let source = self.edges.source_of(relay).expect("it reads");
        self.reads(reader, version(2), &[source]);
        self.edges.remove("policy", reader);
        self.transfers().read_from(reader, version(2), vec![relay]);
    }
}

#[test]
fn whoever_loses_a_source_waits_for_another_with_what_is_good_of_what_it_has() {
    for phase in [Phase::Draining, Phase::Reading] {
        for (staged, suspect) in [(false, false), (false, true), (true, false), (true, true)] {
            for (stripe, failures) in [(0, 1), (1, 3), (7, 0)] {
                let (mut server, [reader, behind, a, b]) = reading(phase, staged);
                let loss = Loss { failures, suspect, stripe };
                for times in 1..3 {
                    server.transfers().lose_source(reader, "cut", loss);
                    let void = phase == Phase::Reading && suspect;
                    let transfer = server.groups[&reader].transfer().expect("it goes on");
                    let said = format!("{phase:?} {staged} {suspect} {stripe} {times}");
                    assert_eq!((transfer.phase, transfer.void), (Phase::Waiting, void), "{said}");
                    assert_eq!(transfer.filling.is_empty(), void, "{said}");
                    assert!(transfer.prepared.is_empty());
                    let lost = if stripe == 1 { b } else { a };
                    assert_eq!(transfer.failures, [(lost, failures)].into(), "once, {said}");
                    let source_replica = server.groups[&lost].replica.clone();
                    let (version, reason) = (version(2), "cut".to_owned());
                    let error = CallError::SourceLost { version, source_replica, reason };
                    assert_eq!(transfer.last_error, Some(error));
                    assert!(server.edges.sources_of(reader).is_empty());
                    for group in [reader, a, b] {
                        assert!(server.agenda.groups.contains(&group), "{said}");
                    }
                    assert!(server.agenda.models.contains("policy"), "their places are free");
                    // Whoever reads what was spoilt begins anew as well.
                    let spoilt = void && !staged;
                    let other = server.groups[&behind].transfer().expect("it goes on");
                    assert_eq!(other.void, spoilt, "{said}");
                    assert_eq!(server.edges.source_of(behind).is_none(), spoilt);
                    // A copy that was on its way out is kept after all.
                    let copy = &server.groups[&reader];
                    let kept = phase == Phase::Draining;
                    let shown = copy.held.as_ref().is_some_and(|held| held.visible);
                    assert_eq!(shown, kept, "{said}");
                    assert_eq!(
                        (copy.drain_until.is_none(), copy.hold_until.is_none()),
                        (kept, kept)
                    );
                }
            }
        }
    }
}

#[test]
fn a_transfer_that_is_given_up_lets_its_readers_go_on_and_keeps_the_old_copy_if_it_may() {
    for phase in [Phase::Waiting, Phase::Draining, Phase::Reading, Phase::Installing] {
        for over in [false, true] {
            let (mut server, [reader, behind, ..]) = reading(phase, true);
            let error = CallError::Misuse { detail: "over".into() };
            server.at(reader).over = over.then_some(Over { error, closing: true });
            server.models.get_mut("policy").expect("a prop").landing.insert(reader);
            server.transfers().abandon_transfer(reader);
            assert!(server.edges.sources_of(reader).is_empty());
            assert!(server.models["policy"].landing.is_empty());
            let other = server.groups[&behind].transfer().expect("it goes on");
            assert_eq!((other.phase, other.void), (Phase::Waiting, false), "it keeps what it has");
            let shown = server.groups[&reader].held.as_ref().is_some_and(|held| held.visible);
            assert_eq!(shown, phase == Phase::Draining && !over, "{phase:?}, {over}");
        }
    }
}

#[test]
fn a_copy_that_is_kept_is_shown_once_and_not_if_it_was_refused() {
    for fenced in [false, true] {
        let (mut server, [reader, ..]) = reading(Phase::Draining, false);
        let error = CallError::Misuse { detail: "refused".into() };
        server.at(reader).held.as_mut().expect("set").fenced = fenced.then_some(error);
        let revision = |server: &Server| server.models["policy"].revision.number;
        let before = revision(&server);
        for _ in 0..2 {
            server.transfers().keep_copy(reader);
            assert_eq!(revision(&server), before + u64::from(!fenced));
        }
        assert_eq!(server.next_timeout(), None);
    }
}
