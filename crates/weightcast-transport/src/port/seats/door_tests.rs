//! Who stands at the door, and what that changes for those inside.

use super::*;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const A: Holder = Holder::Process(1);
const B: Holder = Holder::Process(2);

fn come(seats: &mut Seats, holder: Holder, now: Instant) -> (u64, Arc<ConnectionSeat>) {
    let socket = Arc::new(Socket::Local(UnixStream::pair().unwrap().0));
    seats.enter(&socket, holder, now).expect("a place")
}

/// Two origins have as many strangers: the next one to come makes its own the larger.
#[test]
fn a_newcomer_counts_for_its_origin() {
    let (mut seats, now) = (Seats::new(9), Instant::now());
    let there: Vec<_> = (0..MAX_UNAUTHENTICATED)
        .map(|number| come(&mut seats, if number % 2 == 0 { B } else { A }, now).1)
        .collect();
    come(&mut seats, A, now);
    let lost: Vec<_> = (0..there.len()).filter(|number| there[*number].is_lost()).collect();
    assert_eq!(lost, [1], "the oldest of the newcomer's own");
}

/// As many as there are places left, however many are there already.
#[test]
fn strangers_leave_the_door_as_wide_as_it_is() {
    let (mut seats, now) = (Seats::new(1_000), Instant::now());
    seats.look(1_024, 1_015, now);
    assert_eq!((seats.descriptors.places(), seats.door()), (4, 4));
    for _ in 0..3 {
        come(&mut seats, A, now);
        assert_eq!(seats.door(), 4);
    }
}

/// It has proved the token too late: a newer one has its place at the door.
#[test]
fn whoever_was_driven_out_of_the_door_drives_nobody_out() {
    let (mut seats, mut now) = (Seats::new(1), Instant::now());
    let (inside, member) = come(&mut seats, A, now);
    assert!(seats.admit(inside, now));
    let (driven, stranger) = come(&mut seats, B, now);
    assert!(seats.dismiss_stranger(None, now) && stranger.is_lost());
    now += Duration::from_secs(3600);
    assert!(!seats.admit(driven, now));
    assert!(!member.is_lost(), "though it has rested for long");
}

/// Nothing will come back, so there is nothing to wait for.
#[test]
fn a_port_is_short_only_while_something_is_being_closed() {
    let (mut seats, now) = (Seats::new(9), Instant::now());
    // Eight are left, of which the process is to find two.
    seats.descriptors = Descriptors::seen(1_024, 1_015, 0);
    for (others, short) in [(5, false), (6, true), (7, true)] {
        for number in 0..others {
            let socket = Arc::new(Socket::Local(UnixStream::pair().unwrap().0));
            let seat = Arc::new(ConnectionSeat::new(socket, A, now));
            seats.open.insert(number, seat);
        }
        seats.lost = 0;
        assert!(!seats.is_short(), "{others}");
        seats.lost = 1;
        assert_eq!(seats.is_short(), short, "{others}");
    }
}
