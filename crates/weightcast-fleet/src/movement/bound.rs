//! The least that NICs must carry, whatever the schedule: replicas that relay and hosts that copy among their ranks
//! included. The derivation stands in `docs/concepts/plans.md`.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes that the busiest NIC of each side carries at least.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NicBytes {
    /// Out of the sources.
    pub out: f64,
    /// Into the targets.
    pub into: f64,
}

impl NicBytes {
    /// What the busiest NIC of both sides carries at least.
    pub fn most(&self) -> f64 {
        self.out.max(self.into)
    }
}

/// Bytes that have to leave the sources once, by the ranks that hold them.
#[derive(Default)]
pub(super) struct Leaving {
    by_holders: BTreeMap<Vec<u32>, u64>,
}

impl Leaving {
    /// Bytes that only these ranks hold, which ascend.
    pub(super) fn add(&mut self, holders: &[u32], bytes: u64) {
        if let Some(sum) = self.by_holders.get_mut(holders) {
            *sum += bytes;
        } else {
            self.by_holders.insert(holders.to_vec(), bytes);
        }
    }

    /// The least that the busiest NIC sends, where each `per_unit` of the ranks have everything that one of them has,
    /// and a NIC each: what only some units hold leaves over the NICs of these.
    pub(super) fn least(&self, ranks: u64, per_unit: u64) -> f64 {
        let mut sets = self.by_unit(per_unit);
        let everybody: u64 = sets.values().sum();
        let mut least = everybody as f64 / ranks.max(1) as f64;
        // What all units hold joins no others to one part.
        sets.retain(|set, _| (set.len() as u64) < ranks.div_ceil(per_unit));
        for part in connected(sets) {
            let all: BTreeSet<u32> = part.iter().flat_map(|set| &set.0).copied().collect();
            for units in part.iter().map(|set| set.0.iter().copied().collect()).chain([all]) {
                let within = part.iter().filter(|set| set.0.iter().all(|u| units.contains(u)));
                let bytes: u64 = within.map(|set| set.1).sum();
                least = least.max(bytes as f64 / nics(&units, ranks, per_unit) as f64);
            }
        }
        least
    }

    fn by_unit(&self, per_unit: u64) -> BTreeMap<Vec<u32>, u64> {
        let mut by_unit = BTreeMap::new();
        for (holders, bytes) in &self.by_holders {
            let mut units: Vec<u32> =
                holders.iter().map(|&rank| (u64::from(rank) / per_unit) as u32).collect();
            units.dedup();
            *by_unit.entry(units).or_default() += bytes;
        }
        by_unit
    }
}

/// NICs of these units: as many as ranks, of which the last unit may have fewer.
fn nics(units: &BTreeSet<u32>, ranks: u64, per_unit: u64) -> u64 {
    units.iter().map(|&unit| per_unit.min(ranks - u64::from(unit) * per_unit)).sum()
}

/// The sets in parts that have no unit in common.
fn connected(sets: BTreeMap<Vec<u32>, u64>) -> Vec<Vec<(Vec<u32>, u64)>> {
    let mut parent: BTreeMap<u32, u32> = BTreeMap::new();
    for set in sets.keys() {
        for &unit in set {
            let (a, b) = (root(&parent, set[0]), root(&parent, unit));
            parent.insert(a.max(b), a.min(b));
        }
    }
    let mut parts: BTreeMap<u32, Vec<(Vec<u32>, u64)>> = BTreeMap::new();
    for (set, bytes) in sets {
        parts.entry(root(&parent, set[0])).or_default().push((set, bytes));
    }
    parts.into_values().collect()
}

fn root(parent: &BTreeMap<u32, u32>, unit: u32) -> u32 {
    let mut at = unit;
    while let Some(&next) = parent.get(&at).filter(|&&next| next != at) {
        at = next;
    }
    at
}

#[cfg(test)]
mod tests;
