//! Who gives up a place, on a clock of our own.

use super::*;
use crate::base::limits::{MIN_BUSY_RATE, NEWCOMER_GRACE};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const A: Holder = Holder::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
const B: Holder = Holder::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));
const SECOND: Duration = Duration::from_secs(1);

struct TestedPort {
    seats: Seats,
    now: Instant,
    /// The other ends.
    peers: Vec<UnixStream>,
}

impl TestedPort {
    fn new(limit: usize) -> Self {
        Self { seats: Seats::new(limit), now: Instant::now(), peers: Vec::new() }
    }

    fn stranger(&mut self, holder: Holder) -> (u64, Arc<ConnectionSeat>) {
        let (here, there) = UnixStream::pair().unwrap();
        self.peers.push(there);
        self.now += SECOND;
        self.seats.enter(&Arc::new(Socket::Local(here)), holder, self.now).expect("a place")
    }

    /// One that has proved itself, and whether it got a place.
    fn member(&mut self, holder: Holder) -> Result<Arc<ConnectionSeat>, ()> {
        let (number, seat) = self.stranger(holder);
        if self.seats.admit(number, self.now) {
            return Ok(seat);
        }
        self.seats.leave(number);
        Err(())
    }

    /// Somebody comes while the process has all but so many of 1,024 descriptors in use itself; the
    /// port has those of its connections, and the newcomer's.
    fn look(&mut self, left: u64) {
        let newest = 1_024 - left + self.seats.open.len() as u64;
        self.seats.look(1_024, newest, self.now);
    }

    fn busy(&mut self, holder: Holder) -> Arc<ConnectionSeat> {
        let seat = self.member(holder).expect("room");
        assert!(seat.work(self.now));
        seat
    }
}

fn is_lost(seat: &ConnectionSeat) -> bool {
    seat.is_lost()
}

#[test]
fn the_longest_idle_makes_room() {
    let mut port = TestedPort::new(3);
    let seats: Vec<_> = (0..3).map(|_| port.member(A).unwrap()).collect();
    assert!(seats[0].work(port.now));
    seats[0].rest(port.now + SECOND);
    port.now += SECOND;
    port.member(A).unwrap();
    assert_eq!([0, 1, 2].map(|i| is_lost(&seats[i])), [false, true, false]);
    assert!(!seats[1].work(port.now), "it is told when it next begins");
}

#[test]
fn who_holds_more_places_gives_one_up_first() {
    let mut port = TestedPort::new(4);
    let first = port.member(B).unwrap();
    let many: Vec<_> = (0..3).map(|_| port.member(A).unwrap()).collect();
    port.member(B).unwrap();
    assert!(!is_lost(&first), "though it has been idle longest");
    assert_eq!([0, 1, 2].map(|i| is_lost(&many[i])), [true, false, false]);
}

#[test]
fn strangers_drive_out_strangers_only() {
    let mut port = TestedPort::new(2);
    let members = [port.member(A).unwrap(), port.member(A).unwrap()];
    let first = port.stranger(B).1;
    (0..MAX_UNAUTHENTICATED).for_each(|_| drop(port.stranger(B)));
    assert!(is_lost(&first) && !members.iter().any(|seat| is_lost(seat)));
    assert_eq!(port.seats.strangers.len(), MAX_UNAUTHENTICATED);
}

#[test]
fn a_flood_of_strangers_costs_its_own_host() {
    let mut port = TestedPort::new(2);
    let (number, slow) = port.stranger(A);
    (0..2 * MAX_UNAUTHENTICATED).for_each(|_| drop(port.stranger(B)));
    assert!(!is_lost(&slow) && port.seats.admit(number, port.now));
}

#[test]
fn busy_ones_keep_their_places_while_they_take_what_they_asked_for() {
    let mut port = TestedPort::new(2);
    let (sipping, swift) = (port.busy(A), port.busy(A));
    assert!(port.member(A).is_err(), "both have only begun");
    port.now += BUSY_GRACE;
    let seconds = port.now.elapsed().as_secs() + 1_000;
    sipping.moved(10_000);
    swift.moved((MIN_BUSY_RATE * seconds) as usize);
    let third = port.busy(B);
    assert_eq!([&sipping, &swift].map(|seat| is_lost(seat)), [true, false]);
    assert!(port.member(A).is_err(), "the third has only begun");
    third.rest(port.now);
    port.member(A).expect("an idle one makes room");
    assert!(is_lost(&third));
}

#[test]
fn short_rests_do_not_make_sipping_ones_new() {
    let mut port = TestedPort::new(2);
    let (churning, swift) = (port.busy(A), port.busy(A));
    for _ in 0..BUSY_GRACE.as_secs() {
        churning.moved(100);
        swift.moved(10 * MIN_BUSY_RATE as usize);
        port.now += SECOND / 2;
        [&churning, &swift].into_iter().for_each(|seat| seat.rest(port.now));
        port.now += SECOND / 2;
        assert!(churning.work(port.now) && swift.work(port.now));
    }
    port.member(A).expect("who takes so little gives way, however often it asks");
    assert!(is_lost(&churning) && !is_lost(&swift));
    swift.rest(port.now);
    assert!(swift.work(port.now + BUSY_GRACE));
    assert_eq!(swift.taken(), 0, "after a long rest it begins anew");
}

#[test]
fn of_sipping_ones_the_slowest_goes_but_an_idle_one_before() {
    let mut port = TestedPort::new(3);
    let (slow, slower) = (port.busy(A), port.busy(A));
    let idle = port.member(A).unwrap();
    port.now += BUSY_GRACE;
    slow.moved(2_000_000);
    slower.moved(1_000_000);
    let _keeps_room = port.busy(B);
    assert_eq!([&idle, &slow, &slower].map(|seat| is_lost(seat)), [true, false, false]);
    let _second = port.busy(B);
    assert_eq!([&slow, &slower].map(|seat| is_lost(seat)), [false, true]);
}

#[test]
fn who_has_just_come_and_is_about_to_ask_stays_before_one_that_sips() {
    let mut port = TestedPort::new(2);
    let sipping = port.busy(A);
    port.now += BUSY_GRACE;
    let ((first, seat), (second, other)) = (port.stranger(B), port.stranger(B));
    assert!(port.seats.admit(first, port.now) && port.seats.admit(second, port.now));
    assert_eq!([&sipping, &seat, &other].map(|seat| is_lost(seat)), [true, false, false]);
    let third = port.stranger(B).0;
    port.now -= SECOND;
    assert!(!port.seats.admit(third, port.now), "both have only come");
    port.now += NEWCOMER_GRACE;
    assert!(port.seats.admit(third, port.now));
    assert_eq!([&seat, &other].map(|seat| is_lost(seat)), [true, false]);
}

#[test]
fn a_process_has_places_of_its_own_number() {
    let mut port = TestedPort::new(MAX_PROCESS_CONNECTIONS + 9);
    let other = port.member(A).unwrap();
    let seats: Vec<_> =
        (0..MAX_PROCESS_CONNECTIONS).map(|_| port.busy(Holder::Process(7))).collect();
    // Fast enough to keep them.
    seats.iter().for_each(|seat| seat.moved(usize::MAX / 2));
    assert!(port.member(Holder::Process(7)).is_err());
    port.member(Holder::Process(8)).expect("others are not meant");
    seats[5].rest(port.now);
    port.member(Holder::Process(7)).expect("in place of its own");
    assert!(is_lost(&seats[5]) && !is_lost(&other));
}

#[test]
fn descriptors_come_back_from_strangers_first() {
    let mut port = TestedPort::new(4);
    let member = port.member(A).unwrap();
    let (number, stranger) = port.stranger(A);
    assert!(port.seats.give_way(port.now) && is_lost(&stranger) && !is_lost(&member));
    port.seats.leave(number);
    assert!(port.seats.give_way(port.now) && is_lost(&member));
    assert!(!port.seats.give_way(port.now));
    let busy = port.busy(A);
    assert!(!port.seats.give_way(port.now) && !is_lost(&busy));
}

#[test]
fn who_holds_fewest_gets_a_busy_place_of_whoever_holds_most() {
    let mut port = TestedPort::new(4);
    let many: Vec<_> = (0..4).map(|_| port.busy(A)).collect();
    [5, 3, 2, 4].into_iter().zip(&many).for_each(|(more, seat)| seat.moved((1 << 40) + more));
    assert!(port.member(A).is_err(), "it has all that there are");
    let first = port.busy(B);
    let lost =
        |many: &[Arc<ConnectionSeat>]| many.iter().map(|seat| is_lost(seat)).collect::<Vec<_>>();
    assert_eq!(lost(&many), [false, false, true, false], "the one that loses least");
    let second = port.busy(B);
    assert_eq!(lost(&many), [false, true, true, false]);
    assert!(port.member(B).is_err() && port.member(A).is_err(), "shares are equal");
    assert!(!is_lost(&first) && !is_lost(&second));
}

#[test]
fn a_busy_place_stays_where_its_going_would_only_swap_the_shares() {
    let mut port = TestedPort::new(3);
    let seats: Vec<_> = [A, A, B].into_iter().map(|holder| port.busy(holder)).collect();
    seats.iter().for_each(|seat| seat.moved(1 << 40));
    assert!(port.member(B).is_err(), "then A would have one and B two");
    assert!(!seats.iter().any(|seat| is_lost(seat)));
}

#[test]
fn who_holds_more_takes_no_place_of_who_holds_fewer_unless_it_rests_for_long() {
    let mut port = TestedPort::new(4);
    let honest = port.member(B).unwrap();
    let many: Vec<_> = (0..3).map(|_| port.busy(A)).collect();
    let fast = |many: &[Arc<ConnectionSeat>]| many.iter().for_each(|seat| seat.moved(1 << 40));
    fast(&many);
    honest.work(port.now);
    honest.rest(port.now);
    assert!(port.member(A).is_err() && !is_lost(&honest), "it has only just rested");
    honest.work(port.now);
    port.now += 2 * BUSY_GRACE;
    fast(&many);
    assert!(port.member(A).is_err() && !is_lost(&honest), "it is slow, but has one place");
    honest.rest(port.now);
    port.now += BUSY_GRACE;
    fast(&many);
    port.member(A).expect("nobody loses by it");
    assert!(is_lost(&honest) && !many.iter().any(|seat| is_lost(seat)));
}

#[test]
fn a_process_that_has_opened_more_itself_gets_descriptors_back_once() {
    let mut port = TestedPort::new(100);
    port.look(80);
    let members: Vec<_> = (0..41).map(|_| port.member(A).unwrap()).collect();
    let lost = |seats: &[Arc<ConnectionSeat>]| seats.iter().filter(|seat| is_lost(seat)).count();
    assert_eq!(lost(&members), 1, "half of what is left is the port's");
    port.look(70);
    assert_eq!(lost(&members), 6);
    let (_, stranger) = port.stranger(A);
    port.look(70);
    (0..8).for_each(|_| drop(port.stranger(A)));
    assert_eq!(lost(&members), 6, "what is being closed is not asked for again");
    assert!(is_lost(&stranger), "few wait at the door");
}

#[test]
fn a_port_without_descriptors_turns_strangers_away_before_the_process_feels_it() {
    let mut port = TestedPort::new(100);
    port.look(10);
    // Threads that do not notice that their places are lost.
    let come = |port: &mut TestedPort| {
        let (here, there) = UnixStream::pair().unwrap();
        port.peers.push(there);
        port.seats.enter(&Arc::new(Socket::Local(here)), A, port.now).is_some()
    };
    assert_eq!((0..20).take_while(|_| come(&mut port)).count(), 8);
    assert!(port.seats.is_short());
    port.seats.leave(1);
    assert!(!port.seats.is_short());
    assert!(come(&mut port), "one has closed");
}

#[test]
fn nothing_more_gives_way_while_something_is_being_closed() {
    let mut port = TestedPort::new(4);
    let members = [port.member(A).unwrap(), port.member(A).unwrap()];
    port.now += NEWCOMER_GRACE;
    assert!(port.seats.give_way(port.now) && !port.seats.give_way(port.now));
    assert_eq!([0, 1].map(|at| is_lost(&members[at])), [true, false]);
    port.seats.leave(1);
    assert!(port.seats.give_way(port.now) && is_lost(&members[1]));
}

#[test]
fn shares_say_who_gives_way() {
    let now = Instant::now();
    let moment = Duration::from_nanos(1);
    let rested = Worth::Idle(now - BUSY_GRACE);
    let idle = Worth::Idle(now - BUSY_GRACE + moment);
    for held in 1..6_usize {
        for claim in 0..8_usize {
            let gives = |worth| gives_way(worth, held, Some(claim), now);
            assert!(gives(rested), "{held} {claim}");
            assert_eq!([gives(idle), gives(Worth::Slow(1))], [claim <= held; 2], "{held} {claim}");
            assert_eq!(gives(Worth::Busy(1)), held > claim + 1, "{held} {claim}");
        }
        let to_the_process = [rested, idle, Worth::Slow(1), Worth::Busy(1)];
        let gives = to_the_process.map(|worth| gives_way(worth, held, None, now));
        assert_eq!(gives, [true, true, true, false]);
    }
}

#[test]
fn a_slow_one_goes_before_a_busy_one_of_who_holds_more() {
    let mut port = TestedPort::new(4);
    let slow = port.busy(B);
    port.now += BUSY_GRACE;
    let many: Vec<_> = (0..3).map(|_| port.busy(A)).collect();
    port.member(Holder::Process(9)).expect("the slow one gives way");
    assert!(is_lost(&slow) && !many.iter().any(|seat| is_lost(seat)));
}

/// Threads of lost places count until they have ended.
#[test]
fn a_port_has_so_many_threads_and_no_more() {
    let mut port = TestedPort::new(3);
    let socket = Arc::new(Socket::Local(UnixStream::pair().unwrap().0));
    let come =
        |port: &mut TestedPort| port.seats.enter(&socket, A, port.now).map(|(number, _)| number);
    let most = 2 * (3 + MAX_UNAUTHENTICATED) as u64;
    (1..=most).for_each(|number| assert_eq!(come(&mut port), Some(number)));
    assert_eq!(come(&mut port), None);
    assert_eq!(port.seats.taken(), MAX_UNAUTHENTICATED);
    port.seats.leave(1);
    assert_eq!(come(&mut port), Some(most + 1));
    assert_eq!(come(&mut port), None);
    // Numbers of nobody change nothing.
    port.seats.leave(1);
    port.seats.leave(most + 9);
    assert_eq!((port.seats.taken(), come(&mut port)), (MAX_UNAUTHENTICATED, None));
    (2..=most + 1).for_each(|number| port.seats.leave(number));
    assert_eq!((port.seats.taken(), port.seats.is_empty(), port.seats.lost), (0, true, 0));
}

#[test]
fn nobody_is_let_in_where_all_is_being_closed() {
    let mut port = TestedPort::new(3);
    let (number, stranger) = port.stranger(A);
    let member = port.member(B).unwrap();
    assert!(!port.seats.is_empty());
    port.seats.closing = true;
    let socket = Arc::new(Socket::Local(UnixStream::pair().unwrap().0));
    assert!(port.seats.enter(&socket, A, port.now).is_none());
    port.seats.close();
    assert!(!stranger.socket.is_connected() && !member.socket.is_connected());
    assert_eq!(port.seats.taken(), 2, "their threads will notice");
    port.seats.leave(number);
    assert_eq!(port.seats.taken(), 1);
}

#[test]
fn a_place_is_given_once_and_to_who_is_there() {
    let mut port = TestedPort::new(0);
    let (first, seat) = port.stranger(A);
    assert!(port.seats.admit(first, port.now), "one place at least");
    assert!(!port.seats.admit(first, port.now), "it has one");
    assert!(!port.seats.admit(first + 1, port.now), "nobody came by that number");
    assert!(!is_lost(&seat));
    assert!(seat.work(port.now), "and it is about to ask");
    let (second, _) = port.stranger(B);
    assert!(!port.seats.admit(second, port.now), "the only place is busy");
    seat.rest(port.now);
    assert!(port.seats.admit(second, port.now));
    assert!(is_lost(&seat));
    assert_eq!((port.seats.taken(), port.seats.lost), (1, 1));
}

/// The port has fewer places where there are fewer descriptors, and strangers as many as are free.
#[test]
fn descriptors_bound_places_and_strangers() {
    let mut port = TestedPort::new(1_000);
    assert_eq!(port.seats.door(), MAX_UNAUTHENTICATED);
    for (left, places, door) in
        [(1_024, 768, 256), (400, 200, 200), (40, 20, 20), (3, 1, 1), (1, 0, 1)]
    {
        port.look(left);
        assert_eq!(port.seats.descriptors.places(), places, "{left}");
        assert_eq!(port.seats.door(), door, "{left}");
    }
    // However full it is, some can come to the door.
    port.look(1_024);
    let _members: Vec<_> = (0..18).map(|_| port.member(A).expect("room")).collect();
    for (left, door) in [(40, 5), (44, 5), (48, 6), (50, 7), (200, 82)] {
        port.look(left);
        assert_eq!(port.seats.door(), door, "{left}");
    }
    let mut port = TestedPort::new(1_000);
    // Of eight, four are the port's: the fifth member takes the place of the first.
    port.look(8);
    let members: Vec<_> = (0..5)
        .map(|_| {
            port.now += 2 * NEWCOMER_GRACE;
            port.look(8);
            let seat = port.member(A).expect("a place");
            let lost: Vec<u64> =
                port.seats.open.iter().filter(|(_, s)| s.is_lost()).map(|(n, _)| *n).collect();
            lost.into_iter().for_each(|number| port.seats.leave(number));
            seat
        })
        .collect();
    let lost: Vec<bool> = members.iter().map(|seat| is_lost(seat)).collect();
    assert_eq!(lost, [true, false, false, false, false]);
}

/// Whatever happens, in any order: the counts are those of the places.
#[test]
fn counts_are_those_of_the_places() {
    for seed in 1..40_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut dice = |sides: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 33) % sides
        };
        let limit = 1 + dice(6) as usize;
        let mut port = TestedPort::new(limit);
        let mut seats: Vec<(u64, Arc<ConnectionSeat>)> = Vec::new();
        for _ in 0..150 {
            port.now += SECOND * dice(3) as u32;
            let holders = [A, B, Holder::Process(7), Holder::Process(8)];
            let pick = dice(seats.len().max(1) as u64) as usize;
            match (dice(8), seats.get(pick).cloned()) {
                (0 | 1, _) if seats.len() < 60 => {
                    seats.push(port.stranger(holders[dice(4) as usize]))
                }
                (2 | 3, Some((number, seat))) => {
                    let lost = seat.is_lost();
                    let was = port.seats.strangers.contains(&number);
                    let admitted = port.seats.admit(number, port.now);
                    assert!(!admitted || was && !lost);
                }
                (4, Some((_, seat))) => drop(seat.work(port.now)),
                (5, Some((_, seat))) => {
                    seat.moved(dice(1 << 24) as usize);
                    seat.rest(port.now);
                }
                (6, Some((number, _))) => {
                    port.seats.leave(number);
                    seats.remove(pick);
                }
                (7, _) => drop(port.seats.give_way(port.now)),
                _ => {}
            }
            let all = &port.seats;
            let lost = seats.iter().filter(|(_, seat)| seat.is_lost()).count();
            assert_eq!((all.open.len(), all.lost), (seats.len(), lost), "seed {seed}");
            assert_eq!(all.taken(), seats.len() - lost);
            assert!(all.members().count() <= limit, "seed {seed}");
            let strangers = seats.iter().filter(|(number, _)| all.strangers.contains(number));
            assert!(strangers.clone().all(|(_, seat)| !seat.is_lost()), "seed {seed}");
            assert_eq!(strangers.count(), all.strangers.len(), "seed {seed}");
        }
    }
}

/// Whoever waits at the door, or has lost its place and not left yet, takes none of its process's places.
#[test]
fn a_process_is_held_against_the_places_that_it_has() {
    const SEVENTH: Holder = Holder::Process(7);
    let mut port = TestedPort::new(2 * MAX_PROCESS_CONNECTIONS);
    let mut seats: Vec<_> = (1..MAX_PROCESS_CONNECTIONS).map(|_| port.busy(SEVENTH)).collect();
    for _ in 0..3 {
        port.stranger(SEVENTH);
    }
    seats.push(port.busy(SEVENTH));
    assert!(seats.iter().all(|seat| !is_lost(seat)), "the last of its places drives nobody out");
    seats.iter().for_each(|seat| seat.moved(usize::MAX / 2));
    assert!(port.member(SEVENTH).is_err(), "that was the last");
}
