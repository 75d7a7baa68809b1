//! The pinned worlds go as they went.

use weightcast_sim::Pinned;

#[test]
fn nothing_that_server_or_sessions_say_has_changed() {
    let (then, now) = (Pinned::recorded(), Pinned::now());
    let kind = |world: &Pinned| (world.seed, world.harsh);
    assert!(
        then.iter().map(kind).eq(now.iter().map(kind)),
        "other worlds are written down: `make pin`"
    );
    let other: Vec<String> =
        then.iter().zip(&now).filter(|(a, b)| a != b).map(|(a, _)| a.to_string()).collect();
    assert!(
        other.is_empty(),
        "{} of {} worlds go another way than before, the first one `{}`. `weightcast replay SEED` (`--harsh`) tells \
         its story: compare it with the one that the commit before tells. If all of the difference is meant, `make pin`.",
        other.len(),
        then.len(),
        other[0],
    );
}
