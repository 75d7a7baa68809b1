//! Settings that all worlds of a campaign share, instead of what their seeds draw: harsher ones,
//! given or drawn.

use weightcast_protocol::Span;
use weightcast_testkit::mix;

use crate::base::rng::Rng;
use crate::settings::options::WorldOptions;

/// Settings to use instead of what a seed draws. None by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Harshness {
    /// How many reference servers.
    pub servers: Option<u32>,
    /// The deadline of every call of a program.
    pub call_deadline: Option<Span>,
    /// Bound of every kind of fault, in thousandths of the bound that the seed draws.
    pub fault_rate: Option<u32>,
    /// Settings that are not given are drawn from the seed, from a wider range than usual.
    pub drawn: bool,
}

impl Harshness {
    /// The most servers of a world.
    pub const SERVERS: u32 = 8;

    /// The world that a seed stands for.
    pub fn options(&self, seed: u64) -> WorldOptions {
        let settled = self.settled(seed);
        let mut options = WorldOptions::drawn(seed);
        if let Some(servers) = settled.servers {
            // Sessions take longer to go through a longer list of servers.
            let more = u64::from(servers.saturating_sub(options.servers));
            options.quiet_time.0 += more * options.lease.0;
            options.servers = servers;
        }
        if let Some(deadline) = settled.call_deadline {
            // A call that can't succeed has to time out first, and another call may wait behind it.
            options.quiet_time.0 += 2 * deadline.0;
            options.call_deadline = deadline;
        }
        if let Some(rate) = settled.fault_rate {
            options.faults = options.faults.scaled(rate);
        }
        options
    }

    /// The same settings, with those not given drawn if `drawn` is set.
    fn settled(&self, seed: u64) -> Self {
        if !self.drawn {
            return *self;
        }
        let rng = &mut Rng::new(mix(&[seed, 0x0068_6172_7368]));
        let servers = rng.between(1, 5) as u32;
        let rate = rng.between(500, 4_000) as u32;
        let deadline = rng.chance(700).then(|| Span::from_millis(rng.between(400, 8_000)));
        Self {
            servers: self.servers.or(Some(servers)),
            call_deadline: self.call_deadline.or(deadline),
            fault_rate: self.fault_rate.or(Some(rate)),
            drawn: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::fault_kinds::FaultKind;

    #[test]
    fn what_is_given_holds_in_every_world_and_the_rest_is_as_drawn() {
        let given = Harshness {
            servers: Some(5),
            call_deadline: Some(Span::from_secs(9)),
            fault_rate: Some(3_000),
            drawn: false,
        };
        for seed in 0..50 {
            let (usual, harsh) = (WorldOptions::drawn(seed), given.options(seed));
            assert_eq!((harsh.servers, harsh.call_deadline), (5, Span::from_secs(9)));
            assert_eq!((harsh.rollouts, harsh.lease), (usual.rollouts, usual.lease));
            for kind in FaultKind::ALL {
                assert_eq!(harsh.faults.most(*kind), 3 * usual.faults.most(*kind));
            }
            let same = Harshness::default().options(seed);
            assert_eq!(format!("{same:?}"), format!("{usual:?}"));
        }
    }

    #[test]
    fn what_is_drawn_is_the_seed_s_and_what_is_given_stays() {
        let drawn = Harshness { drawn: true, ..Harshness::default() };
        let worlds = || (0..100).map(|seed| drawn.options(seed));
        assert!(worlds().map(|w| format!("{w:?}")).eq(worlds().map(|w| format!("{w:?}"))));
        assert!(worlds().any(|world| world.servers > 3));
        assert!(worlds().any(|world| world.call_deadline > Span::from_secs(5)));
        assert!(worlds().any(|world| world.call_deadline == Span(0)));
        let two = Harshness { servers: Some(2), ..drawn };
        assert!((0..100).all(|seed| two.options(seed).servers == 2));
    }
}
