//! Words come as they were said, and what says more than a word may is none.

use super::*;
use crate::client::push::samples::*;

/// Checks that a word comes as it was said.
#[track_caller]
fn comes(word: &PushWord) {
    assert_eq!(PushWord::decode(&word.encode().unwrap()).as_ref(), Ok(word));
}

#[track_caller]
fn is_beyond(word: &PushWord) {
    let bytes = serde_json::to_vec(word).unwrap();
    match PushWord::decode(&bytes) {
        Err(WordError::Beyond { .. }) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_word_comes_as_it_was_said() {
    samples().iter().for_each(comes);
    let dismissed = OrderWord {
        order: PushOrder { command: PushCommand::Dismiss, ..order([]).order },
        ..order([])
    };
    comes(&PushWord::Order(dismissed));
}

#[test]
fn a_word_has_as_much_as_it_may_and_no_more() {
    let (shards, parcels) = (PUSH_SHARDS, PUSH_PARCELS as u32);
    let text = |len| "x".repeat(len);
    comes(&PushWord::Offer(offer(shards)));
    is_beyond(&PushWord::Offer(offer(shards + 1)));
    comes(&PushWord::Offer(PushOffer { replica: text(NAME_BYTES), ..offer(1) }));
    is_beyond(&PushWord::Offer(PushOffer { replica: text(NAME_BYTES + 1), ..offer(1) }));
    for (replica, driver, fits) in
        [(NAME_BYTES, NAME_BYTES, true), (NAME_BYTES + 1, 1, false), (1, NAME_BYTES + 1, false)]
    {
        let word = PushWord::Ask(question(&text(replica), &text(driver)));
        if fits { comes(&word) } else { is_beyond(&word) }
    }
    let most = |word: OrderWord| PushWord::Order(OrderWord { base: names(shards), ..word });
    comes(&most(order(0..parcels)));
    is_beyond(&PushWord::Order(order([parcels])));
    is_beyond(&PushWord::Order(OrderWord { base: names(shards + 1), ..order([]) }));
    is_beyond(&PushWord::Order(OrderWord { driver: text(NAME_BYTES + 1), ..order([]) }));
    comes(&PushWord::Report(report(0..parcels)));
    is_beyond(&PushWord::Report(report([parcels])));
    let of = report([]);
    let differing = [(parcels, SenderId(1))].into();
    let differs = PushReport { differing, ..of.report.clone() };
    is_beyond(&PushWord::Report(ReportWord { report: differs, ..of.clone() }));
    let grants = vec![grant([parcels])];
    let grants = PushReport { grants, ..of.report.clone() };
    is_beyond(&PushWord::Report(ReportWord { report: grants, ..of }));
    let (base, layouts) = (names(shards), names(shards));
    comes(&PushWord::Grant(GrantWord { base, layouts, ..granted(0..parcels) }));
    is_beyond(&PushWord::Grant(granted([parcels])));
    is_beyond(&PushWord::Grant(GrantWord { layouts: names(shards + 1), ..granted([]) }));
    is_beyond(&PushWord::Grant(GrantWord { base: names(shards + 1), ..granted([]) }));
    is_beyond(&PushWord::Grant(GrantWord { at: text(NAME_BYTES + 1), ..granted([]) }));
    is_beyond(&PushWord::Grant(GrantWord { driver: text(NAME_BYTES + 1), ..granted([]) }));
    comes(&PushWord::Written(written(0..parcels)));
    is_beyond(&PushWord::Written(written([parcels])));
    let sums = [(parcels, Sum([0, 0]))].into();
    is_beyond(&PushWord::Written(WrittenWord { sums, ..written([]) }));
}

/// An error of any length is told, in characters.
#[test]
fn a_detail_is_cut_to_what_a_word_may_have() {
    for text in ["x".repeat(TEXT_BYTES), "ü".repeat(TEXT_BYTES)] {
        let word = OverWord::new(TargetId(1), PUSH, TargetOver::Left, &text);
        assert!(text.starts_with(&word.detail) && word.detail.len() == TEXT_BYTES);
        comes(&PushWord::Over(word));
    }
    let mut word = OverWord::new(TargetId(1), PUSH, TargetOver::Left, "");
    word.detail = "x".repeat(TEXT_BYTES + 1);
    is_beyond(&PushWord::Over(word));
}

#[test]
fn bytes_that_are_no_word_are_refused() {
    let word = PushWord::Grant(granted([0, 1])).encode().unwrap();
    for cut in 0..word.len() {
        assert!(PushWord::decode(&word[..cut]).is_err(), "{cut}");
    }
    let text = String::from_utf8(word).unwrap();
    for (said, instead) in [("\"Grant\"", "\"Grants\""), ("0000", "000g"), ("0101", "01")] {
        assert!(text.contains(said));
        assert!(PushWord::decode(text.replace(said, instead).as_bytes()).is_err(), "{said}");
    }
    for bytes in [&b""[..], b"{}", b"null", b"[[[[[[", &[b' '; MAX_WORD_BYTES + 1]] {
        assert!(PushWord::decode(bytes).is_err());
    }
    let endless = "[".repeat(MAX_WORD_BYTES);
    assert!(PushWord::decode(endless.as_bytes()).is_err(), "and nothing overflows");
}

#[test]
fn a_report_says_how_many_parcels_its_plan_has_at_least() {
    let base = || PushReport { differing: [].into(), grants: Vec::new(), ..report([]).report };
    let most = |report| ReportWord { report, opened: Vec::new() }.most_parcels();
    assert_eq!(most(base()), 0);
    assert_eq!(most(PushReport { written: [0, 4].into(), ..base() }), 5);
    assert_eq!(most(PushReport { differing: [(7, SenderId(1))].into(), ..base() }), 8);
    assert_eq!(most(PushReport { grants: vec![grant([2]), grant([0, 9])], ..base() }), 10);
}

/// Whatever both ends know of a grant makes its secret.
#[test]
fn a_grants_secret_is_bound_to_all_that_is_known_of_it() {
    let own = opened();
    let known = |of: OpenedGrant, target, sender, generation| {
        of.known(TargetId(target), SenderId(sender), generation)
    };
    let base = known(own, 1, 2, 3);
    assert_eq!(base, known(own, 1, 2, 3));
    for other in [
        known(OpenedGrant { nonce: [254; 32], ..own }, 1, 2, 3),
        known(OpenedGrant { number: 5, ..own }, 1, 2, 3),
        known(own, 4, 2, 3),
        known(own, 1, 4, 3),
        known(own, 1, 2, 4),
    ] {
        assert_ne!(base, other);
    }
}
