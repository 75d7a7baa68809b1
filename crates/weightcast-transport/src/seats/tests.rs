//! Who gives up a place, on a clock of our own.

use super::*;
use std::os::unix::net::UnixStream;
use std::time::Duration;

const A: Holder = Holder::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)));
const B: Holder = Holder::Address(IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)));
const SECOND: Duration = Duration::from_secs(1);

struct Port {
    seats: Seats,
    now: Instant,
    /// The other ends.
    peers: Vec<UnixStream>,
}

impl Port {
    fn new(limit: usize) -> Self {
        Self { seats: Seats::new(limit), now: Instant::now(), peers: Vec::new() }
    }

    fn stranger(&mut self, holder: Holder) -> (u64, Arc<Seat>) {
        let (here, there) = UnixStream::pair().unwrap();
        self.peers.push(there);
        self.now += SECOND;
        self.seats.enter(&Arc::new(Socket::Local(here)), holder, self.now).expect("a place")
    }

    /// One that has proved itself, and whether it got a place.
    fn member(&mut self, holder: Holder) -> Result<Arc<Seat>, ()> {
        let (number, seat) = self.stranger(holder);
        if self.seats.admit(number, self.now) {
            return Ok(seat);
        }
        self.seats.leave(number);
        Err(())
    }

    fn busy(&mut self, holder: Holder) -> Arc<Seat> {
        let seat = self.member(holder).expect("room");
        assert!(seat.work(self.now));
        seat
    }
}

fn is_lost(seat: &Seat) -> bool {
    *lock(&seat.state) == State::Lost
}

#[test]
fn the_longest_idle_makes_room() {
    let mut port = Port::new(3);
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
    let mut port = Port::new(4);
    let first = port.member(B).unwrap();
    let many: Vec<_> = (0..3).map(|_| port.member(A).unwrap()).collect();
    port.member(B).unwrap();
    assert!(!is_lost(&first), "though it has been idle longest");
    assert_eq!([0, 1, 2].map(|i| is_lost(&many[i])), [true, false, false]);
}

#[test]
fn strangers_drive_out_strangers_only() {
    let mut port = Port::new(2);
    let members = [port.member(A).unwrap(), port.member(A).unwrap()];
    let first = port.stranger(B).1;
    (0..MAX_UNAUTHENTICATED).for_each(|_| drop(port.stranger(B)));
    assert!(is_lost(&first) && !members.iter().any(|seat| is_lost(seat)));
    assert_eq!(port.seats.strangers.len(), MAX_UNAUTHENTICATED);
}

#[test]
fn busy_ones_keep_their_places_while_they_take_what_they_asked_for() {
    let mut port = Port::new(2);
    let (sipping, swift) = (port.busy(A), port.busy(A));
    assert!(port.member(B).is_err(), "both have only begun");
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
fn of_sipping_ones_the_slowest_goes_but_an_idle_one_before() {
    let mut port = Port::new(3);
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
fn a_process_has_places_of_its_own_number() {
    let mut port = Port::new(MAX_PROCESS_CONNECTIONS + 9);
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
    let mut port = Port::new(4);
    let member = port.member(A).unwrap();
    let stranger = port.stranger(A).1;
    assert!(port.seats.give_way(port.now) && is_lost(&stranger) && !is_lost(&member));
    assert!(port.seats.give_way(port.now) && is_lost(&member));
    assert!(!port.seats.give_way(port.now));
    let busy = port.busy(A);
    assert!(!port.seats.give_way(port.now) && !is_lost(&busy));
}

#[test]
fn an_address_stands_for_what_one_host_has() {
    let of = |text: &str| Holder::of_address(text.parse().unwrap());
    assert_eq!(of("::ffff:10.0.0.1"), A);
    assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
    assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
}
