//! The runtime of several clients and the real server machine in one process, driven by hand: nothing
//! happens but what [`world`] lets happen, at a time that it makes up. What is virtual is the network
//! ([`net`]) and the clock; control threads, streams, memory, plans, reads and data ports are the real
//! ones. Reads are stopped where a test wants ([`gate`]), and after each event all is compared with what
//! the session says ([`checks`]).

mod checks;
mod counted;
mod differs;
mod ends;
mod gate;
mod groups;
mod late;
mod net;
mod offloads;
mod pushed;
mod random;
mod random_groups;
mod refused;
mod released;
mod replans;
mod restarted;
mod scene;
mod seconds;
mod seeds;
mod servers;
mod slow;
mod streams;
mod worker;
mod world;

/// Numbers from a seed (splitmix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}
