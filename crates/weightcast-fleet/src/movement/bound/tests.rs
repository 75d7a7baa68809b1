//! The bound against every schedule of small transfers, and against every set of hosts.

use std::collections::BTreeSet;

use super::*;

struct HostLot(u64);

impl HostLot {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % n
    }

    /// A set of some of `n`, at least one.
    fn some(&mut self, n: u64) -> u64 {
        1 + self.below((1 << n) - 1)
    }
}

/// Hosts with a NIC each. An element is a bit, and so is a host in a set of holders.
struct HostTransfer {
    /// What each host has at first, and what each is to have.
    held: Vec<u64>,
    wanted: Vec<u64>,
}

impl HostTransfer {
    /// The fewest rounds in which everybody has what he is to have. In a round a host sends one element of those that
    /// it has, to anybody, and receives one: whatever a schedule with relays does, this does as well.
    fn rounds(&self) -> u64 {
        let (mut met, mut now, mut rounds) = (BTreeSet::new(), vec![self.held.clone()], 0);
        let done =
            |has: &Vec<u64>| has.iter().zip(&self.wanted).all(|(has, want)| want & !has == 0);
        while !now.iter().any(done) {
            let mut next = BTreeSet::new();
            for has in &now {
                round(has, 0, 0, &mut has.clone(), &mut next);
            }
            next.retain(|has| met.insert(has.clone()));
            (now, rounds) = (next.into_iter().collect(), rounds + 1);
        }
        rounds
    }

    /// The least bytes of a NIC: an element is a byte.
    fn least(&self, sources: usize) -> NicBytes {
        let mut leaving = Leaving::default();
        for element in 0..8 {
            let has = |host: &u32| self.held[*host as usize] >> element & 1 == 1;
            if self.wanted.iter().any(|wanted| wanted >> element & 1 == 1) {
                leaving.add(&(0..sources as u32).filter(has).collect::<Vec<_>>(), 1);
            }
        }
        let into = self.wanted.iter().map(|wanted| wanted.count_ones()).max();
        NicBytes { out: leaving.least(sources as u64, 1), into: f64::from(into.unwrap_or(0)) }
    }
}

/// All states after a round, host by host: what it receives, from a host that has not sent yet.
fn round(has: &[u64], to: usize, sent: u64, then: &mut Vec<u64>, next: &mut BTreeSet<Vec<u64>>) {
    if to == has.len() {
        next.insert(then.clone());
        return;
    }
    round(has, to + 1, sent, then, next);
    for from in (0..has.len()).filter(|from| sent >> from & 1 == 0) {
        let mut new = has[from] & !has[to];
        while new != 0 {
            let element = new & new.wrapping_neg();
            (then[to], new) = (has[to] | element, new ^ element);
            round(has, to + 1, sent | 1 << from, then, next);
        }
    }
    then[to] = has[to];
}

/// No schedule ends before the bound; where all is alike, some schedule ends at the bound.
#[test]
fn no_schedule_beats_the_bound() {
    let mut rng = HostLot(3);
    let mut met = 0;
    for _ in 0..150 {
        let sources = 1 + rng.below(2) as usize;
        let targets = 1 + rng.below(4 - sources as u64) as usize;
        let elements = 1 + rng.below(3);
        let mut held: Vec<u64> = (0..sources).map(|_| rng.some(elements)).collect();
        let missing = ((1 << elements) - 1) & !held.iter().fold(0, |all, some| all | some);
        held[0] |= missing;
        held.resize(sources + targets, 0);
        let mut wanted = vec![0; sources];
        wanted.extend((0..targets).map(|_| rng.some(elements)));
        let transfer = HostTransfer { held, wanted };
        let (least, rounds) = (transfer.least(sources).most(), transfer.rounds() as f64);
        assert!(least <= rounds, "{least} of {rounds}: {:?} {:?}", transfer.held, transfer.wanted);
        met += u64::from(least == rounds);
    }
    assert!(met > 50, "the bound is met {met} times");
}

/// Relays: one source and three targets take a round more than there are elements, where the source alone takes nine.
#[test]
fn relays_are_below_what_a_source_alone_would_take() {
    let transfer = HostTransfer { held: vec![7, 0, 0, 0], wanted: vec![0, 7, 7, 7] };
    assert_eq!(transfer.least(1), NicBytes { out: 3.0, into: 3.0 });
    assert_eq!(transfer.rounds(), 4);
}

/// The best of all sets of units, tried one by one.
fn best(leaving: &Leaving, ranks: u64, per_unit: u64) -> f64 {
    let count = ranks.div_ceil(per_unit) as u32;
    let sets = leaving.by_unit(per_unit);
    let of = |bits: u64| {
        let units: BTreeSet<u32> = (0..count).filter(|unit| bits >> unit & 1 == 1).collect();
        let held = sets.iter().filter(|set| set.0.iter().all(|unit| units.contains(unit)));
        held.map(|set| *set.1).sum::<u64>() as f64 / nics(&units, ranks, per_unit) as f64
    };
    (1..1 << count).map(of).fold(0.0, f64::max)
}

#[test]
fn what_only_some_hold_leaves_over_their_nics() {
    let mut rng = HostLot(5);
    let mut exact = 0;
    for turn in 0..2_000 {
        let (ranks, per_unit) = (1 + rng.below(7), 1 + rng.below(3));
        let mut leaving = Leaving::default();
        let mut alone = vec![0; ranks as usize];
        let mut all = 0;
        for _ in 0..rng.below(6) {
            let (set, bytes) = (rng.some(ranks), rng.below(50));
            let holders: Vec<u32> = (0..ranks as u32).filter(|r| set >> r & 1 == 1).collect();
            if let [only] = holders[..] {
                alone[only as usize] += bytes;
            }
            leaving.add(&holders, bytes);
            all += bytes;
        }
        let (least, best) = (leaving.least(ranks, per_unit), best(&leaving, ranks, per_unit));
        assert!(least <= best, "turn {turn}: {least} of {best}");
        assert!(least >= all as f64 / ranks as f64, "turn {turn}: {least} of {all}");
        assert!(per_unit > 1 || alone.iter().all(|&bytes| least >= bytes as f64), "turn {turn}");
        exact += u64::from(least == best);
    }
    assert!(exact > 1_800, "{exact} of 2,000 are the best that sets of hosts give");
    assert_eq!(Leaving::default().least(4, 2), 0.0);
}

/// Ranks of one host send for one another; the last host may have fewer NICs.
#[test]
fn hosts_have_the_nics_of_their_ranks() {
    let mut leaving = Leaving::default();
    leaving.add(&[0], 12);
    leaving.add(&[4], 8);
    assert_eq!(leaving.least(5, 1), 12.0);
    assert_eq!(leaving.least(5, 2), 8.0, "the fifth rank is alone on its host");
    assert_eq!(leaving.least(6, 2), 6.0);
    assert_eq!(leaving.least(5, 5), 4.0);
}
