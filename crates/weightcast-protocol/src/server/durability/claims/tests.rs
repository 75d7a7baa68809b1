use super::*;
use crate::CallError;
use crate::server::Server;
use crate::server::props::{server, version};
use crate::server::stores::group::Over;

const NOW: Time = Time(1_000);

/// Groups of two shards that hold version 1, and are trusted so far.
fn holders(trusts: &[Trust]) -> (Server, Vec<Incarnation>) {
    let mut server = server();
    let names = ["a", "b", "c", "d"];
    let groups: Vec<Incarnation> =
        names[..trusts.len()].iter().map(|name| server.prop(name, 2)).collect();
    for (group, trust) in groups.iter().zip(trusts) {
        server.holds(*group, version(1));
        server.at(*group).held.as_mut().unwrap().trust = *trust;
    }
    server.models.get_mut("policy").unwrap().retention.versions = 1;
    (server, groups)
}

/// Whom to compare, as places among the groups.
fn compared(server: &Server, groups: &[Incarnation], now: Time) -> Option<(usize, usize)> {
    let place = |group| groups.iter().position(|of| *of == group).unwrap();
    let pair = server.books().to_compare(now, &server.models["policy"], version(1));
    pair.map(|(one, other)| (place(one), place(other)))
}

#[test]
fn a_claim_is_compared_beside_a_proved_copy_or_else_beside_another_claim() {
    use Trust::{Claimed, Proved, Refuted};
    for (trusts, expected) in [
        (&[][..], None),
        (&[Claimed], None),
        (&[Proved], None),
        (&[Claimed, Claimed], Some((0, 1))),
        (&[Proved, Claimed], Some((1, 0))),
        (&[Claimed, Proved], Some((0, 1))),
        (&[Proved, Proved], None),
        (&[Proved, Proved, Claimed], None),
        (&[Refuted, Claimed], None),
        (&[Proved, Refuted], None),
        (&[Refuted, Claimed, Claimed], Some((1, 2))),
        (&[Claimed, Refuted, Proved, Claimed], Some((0, 2))),
    ] {
        let (server, groups) = match trusts.is_empty() {
            true => holders(&[Claimed]),
            false => holders(trusts),
        };
        assert_eq!(compared(&server, &groups, NOW), expected, "{trusts:?}");
    }
}

#[test]
fn nothing_is_compared_that_is_not_retained_or_would_not_count() {
    let (mut server, groups) = holders(&[Trust::Proved, Trust::Claimed]);
    server.models.get_mut("policy").unwrap().retention.versions = 0;
    assert_eq!(compared(&server, &groups, NOW), None);
    let (mut server, groups) = holders(&[Trust::Proved, Trust::Claimed]);
    server.at(groups[1]).members.get_mut(&0).unwrap().location.spot = true;
    assert_eq!(compared(&server, &groups, NOW), None);
    // Who is asked to show it need not count itself.
    let (mut server, groups) = holders(&[Trust::Proved, Trust::Claimed]);
    server.at(groups[0]).members.get_mut(&0).unwrap().location.spot = true;
    assert_eq!(compared(&server, &groups, NOW), Some((1, 0)));
}

#[test]
fn who_gives_its_copy_up_is_the_one_to_ask() {
    let (mut server, groups) = holders(&[Trust::Claimed, Trust::Claimed, Trust::Proved]);
    server.copies().hide(groups[2]);
    assert_eq!(compared(&server, &groups, NOW), Some((0, 1)), "it may be gone");
    let model = server.models.get_mut("policy").unwrap();
    model.retention.held_back.insert(groups[2]);
    assert_eq!(compared(&server, &groups, NOW), Some((0, 2)));
}

#[test]
fn a_pair_that_was_asked_in_vain_is_asked_again_after_all_others_and_in_its_time() {
    let (mut server, groups) = holders(&[Trust::Claimed, Trust::Claimed, Trust::Claimed]);
    let pairs =
        [(0, 1), (2, 0), (1, 2)].map(|(a, b): (usize, usize)| (version(1), groups[a], groups[b]));
    let mut expected = [(0, 2), (1, 2)].into_iter().map(Some).chain([None]);
    for (pair, again) in pairs.into_iter().zip([30, 10, 20]) {
        server.models.get_mut("policy").unwrap().unshown.insert(pair, Time(again));
        // In whichever order they were asked.
        assert_eq!(compared(&server, &groups, Time(9)), expected.next().unwrap());
    }
    for (now, expected) in [(10, (2, 0)), (15, (2, 0)), (30, (2, 0))] {
        assert_eq!(compared(&server, &groups, Time(now)), Some(expected));
    }
    server.models.get_mut("policy").unwrap().unshown.remove(&pairs[1]);
    server.at(groups[2]).held.as_mut().unwrap().trust = Trust::Refuted;
    assert_eq!(compared(&server, &groups, Time(29)), None, "who is refuted is not asked again");
    assert_eq!(compared(&server, &groups, Time(30)), Some((0, 1)));
}

#[test]
fn a_pair_is_forgotten_with_either_of_its_groups_and_with_the_version() {
    for gone in 0..4 {
        let (mut server, groups) = holders(&[Trust::Claimed, Trust::Claimed]);
        let pair = (version(1), groups[0], groups[1]);
        server.models.get_mut("policy").unwrap().unshown.insert(pair, Time(u64::MAX));
        match gone {
            0 | 1 => {
                server.copies().hide(groups[gone]);
                server.groups.remove(&groups[gone]);
            }
            2 => groups.iter().for_each(|group| server.copies().hide(*group)),
            _ => {}
        }
        server.durability().review_claims(NOW, "policy");
        let kept = server.models["policy"].unshown.beside(version(1), groups[1]);
        assert_eq!(kept, gone == 3, "{gone}");
    }
}

#[test]
fn a_group_is_trusted_while_all_of_it_can_be_asked() {
    let (mut server, groups) = holders(&[Trust::Proved]);
    let trust = |server: &Server| server.groups[&groups[0]].trust(version(1));
    assert_eq!(trust(&server), Some(Trust::Proved));
    assert_eq!(server.groups[&groups[0]].trust(version(2)), None);
    let error = CallError::Misuse { detail: String::new() };
    let mut closing = server.clone();
    closing.at(groups[0]).over = Some(Over { error: error.clone(), closing: true });
    assert_eq!(trust(&closing), Some(Trust::Proved), "it serves until it has gone");
    closing.at(groups[0]).over.as_mut().unwrap().closing = false;
    assert_eq!(trust(&closing), None);
    let mut fenced = server.clone();
    fenced.at(groups[0]).held.as_mut().unwrap().fenced = Some(error);
    assert_eq!(trust(&fenced), None);
    let mut unsealed = server.clone();
    unsealed.at(groups[0]).held.as_mut().unwrap().sealed = false;
    assert_eq!(trust(&unsealed), None);
    server.at(groups[0]).members.remove(&1);
    assert_eq!(trust(&server), None);
}

#[test]
fn a_side_has_shown_its_sum_when_all_its_shards_have() {
    let (server, groups) = holders(&[Trust::Claimed]);
    let mut side = ChallengeSide::of(&server.groups[&groups[0]]).unwrap();
    assert_eq!(side.shown(), None);
    side.answers.insert(1, u64::MAX);
    assert_eq!(side.shown(), None);
    side.answers.insert(0, 3);
    assert_eq!(side.shown(), Some(2));
}

#[test]
fn copies_are_claims_again_once_none_is_proved_that_could_have_refuted_them() {
    for (other, forgiven) in
        [(Trust::Proved, false), (Trust::Claimed, true), (Trust::Refuted, true)]
    {
        for leaves in [false, true] {
            let (mut server, groups) = holders(&[Trust::Refuted, other]);
            if leaves {
                server.copies().hide(groups[1]);
                let model = server.models.get_mut("policy").unwrap();
                model.retention.held_back.insert(groups[1]);
            }
            server.durability().forgive("policy", version(1));
            let trust = server.groups[&groups[0]].trust(version(1));
            let expected = if forgiven { Trust::Claimed } else { Trust::Refuted };
            assert_eq!(trust, Some(expected), "{other:?}, leaves: {leaves}");
        }
    }
}

/// The comparison that runs, and all shards that were asked.
fn asked(server: &mut Server) -> Nonce {
    server.durability().challenge(NOW, "policy", version(1));
    assert_eq!(server.challenges.len(), 1);
    server.challenges.ids().copied().next().unwrap()
}

/// Each shard of a group shows its part of a sum.
fn show(server: &mut Server, group: Incarnation, nonce: Nonce, sum: u64) {
    for shard in 0..2 {
        let (member, part) = (server.member(group, shard), [sum - 7, 7][shard as usize]);
        server.durability().proof(NOW, member, Generation(10 + u64::from(shard)), nonce, part);
    }
}

#[test]
fn what_two_groups_have_shown_decides_whom_to_believe() {
    use Trust::{Claimed, Proved, Refuted};
    // The reference's trust, what it and the claimant show; then both trusts, and what is counted.
    for (reference, shown, trusts, counted, in_vain) in [
        (Proved, [Some(50), Some(50)], [Proved, Proved], (1, 0), false),
        (Proved, [Some(50), Some(51)], [Proved, Refuted], (0, 1), false),
        (Proved, [Some(50), None], [Proved, Claimed], (0, 0), true),
        (Proved, [None, Some(50)], [Proved, Claimed], (0, 0), true),
        (Proved, [None, None], [Proved, Claimed], (0, 0), true),
        (Claimed, [Some(50), Some(50)], [Proved, Proved], (1, 0), false),
        (Claimed, [Some(50), Some(51)], [Claimed, Claimed], (0, 0), true),
        (Claimed, [None, Some(50)], [Claimed, Claimed], (0, 0), true),
    ] {
        let (mut server, groups) = holders(&[Claimed, reference]);
        let (claimant, beside) = (groups[0], groups[1]);
        let pair = (version(1), claimant, beside);
        let nonce = asked(&mut server);
        assert_eq!(server.next_timeout(), Some(NOW + ANSWER));
        for (group, sum) in [(beside, shown[0]), (claimant, shown[1])] {
            if let Some(sum) = sum {
                show(&mut server, group, nonce, sum);
            }
        }
        server.durability().decide(NOW, nonce);
        assert!(server.challenges.is_empty() && server.agenda.models.contains("policy"));
        let trust = |group: Incarnation| server.groups[&group].trust(version(1)).unwrap();
        assert_eq!([trust(beside), trust(claimant)], trusts, "{shown:?}");
        let counters = &server.counters;
        assert_eq!(
            (counters.challenges, counters.proofs, counters.refuted),
            (1, counted.0, counted.1)
        );
        let unshown = &server.models["policy"].unshown;
        assert_eq!(unshown.contains(version(1), claimant, beside), in_vain);
        let again = NOW + RETRY;
        assert_eq!(unshown.due(again, |of| *of == pair), in_vain.then_some(pair));
        assert_eq!(unshown.due(Time(again.0 - 1), |_| true), None);
        assert_eq!(server.next_timeout(), in_vain.then_some(again));
    }
}

#[test]
fn a_shard_shows_its_part_once_at_the_generation_that_it_was_asked_for() {
    let (mut server, groups) = holders(&[Trust::Claimed, Trust::Proved, Trust::Refuted]);
    let nonce = asked(&mut server);
    let member = server.member(groups[0], 1);
    let answers = |server: &Server| server.challenges[&nonce].claimant.answers.clone();
    for (generation, of) in [(10, nonce), (12, nonce), (11, Nonce(nonce.0 ^ 1))] {
        server.durability().proof(NOW, member, Generation(generation), of, 5);
        assert!(answers(&server).is_empty());
    }
    let stranger = server.member(groups[2], 1);
    server.durability().proof(NOW, stranger, Generation(11), nonce, 5);
    assert!(answers(&server).is_empty(), "it was not asked");
    server.durability().proof(NOW, member, Generation(11), nonce, 5);
    server.durability().proof(NOW, member, Generation(11), nonce, 6);
    assert_eq!(answers(&server), [(1, 5)].into());
    assert!(server.challenges[&nonce].reference.answers.is_empty());
}

#[test]
fn a_comparison_ends_when_one_of_the_copies_is_another_one() {
    for side in 0..2 {
        let (mut server, groups) = holders(&[Trust::Claimed, Trust::Proved]);
        let nonce = asked(&mut server);
        server.durability().challenge(NOW, "policy", version(1));
        assert!(server.challenges.contains(&nonce), "one at a time");
        server.at(groups[side]).held.as_mut().unwrap().generations[0] = Generation(99);
        server.durability().challenge(NOW, "policy", version(1));
        assert!(!server.challenges.contains(&nonce));
        assert_eq!(server.challenges.len(), 1, "and the copies that there are now are compared");
        let timers: Vec<Timer> = server.timers.iter().copied().collect();
        assert!(!timers.contains(&Timer::Proof(nonce)), "{timers:?}");
        // What was shown of the one before says nothing of it.
        let (mut server, groups) = holders(&[Trust::Claimed, Trust::Proved]);
        let nonce = asked(&mut server);
        show(&mut server, groups[1 - side], nonce, 50);
        let member = server.member(groups[side], 0);
        server.durability().proof(NOW, member, Generation(10), nonce, 43);
        server.at(groups[side]).held.as_mut().unwrap().generations[1] = Generation(99);
        let member = server.member(groups[side], 1);
        server.durability().proof(NOW, member, Generation(11), nonce, 7);
        let trust = server.groups[&groups[side]].trust(version(1)).unwrap();
        let before = [Trust::Claimed, Trust::Proved][side];
        assert_eq!(trust, before);
    }
}

#[test]
fn models_are_compared_each_for_itself() {
    let (mut server, groups) = holders(&[Trust::Claimed, Trust::Proved]);
    let nonce = asked(&mut server);
    let compared = |server: &Server, number| {
        server.clone().durability().is_compared(groups[0], version(number))
    };
    assert!(compared(&server, 1) && !compared(&server, 2));
    server.challenges.get_mut(&nonce).unwrap().model = "other".to_owned();
    assert!(!compared(&server, 1));
    server.durability().challenge(NOW, "policy", version(1));
    assert_eq!(server.challenges.len(), 2);
    // Who has gone lets those be looked at that were compared with it.
    server.agenda.models.clear();
    server.durability().note_gone(groups[1]);
    assert!(server.agenda.models.contains("policy"));
    server.agenda.models.clear();
    server.challenges.clear();
    server.durability().note_gone(groups[1]);
    assert!(server.agenda.models.is_empty());
}
