//! Movement: what moving a version from all ranks of a trainer to all ranks of all engines takes.
//!
//! Tensor by tensor, so that a model of a trillion parameters on hundreds of ranks needs seconds
//! and little memory: the holders on both sides, the cells in which they meet, a source for each by
//! least bytes so far. Bytes that several ranks of a host need enter it once.

mod balance;
mod bound;
mod cells;
mod cost;
mod holders;
mod machine;
mod moves;
mod names;
mod routes;
mod unlike;

use std::collections::BTreeSet;

use weightcast_plan::Slice;

use crate::cluster::Cluster;
use crate::error::RuleError;
use crate::model::{Family, ModuleTensor, TensorRole, fill};
use balance::Balance;
use bound::Leaving;
pub use bound::NicBytes;
use cells::{BoxHolders, all_holders, cut, groups};
pub use cost::{Cost, UpdatePart};
use holders::{HeldBox, Holders};
pub use machine::{Assumed, AssumedMachine};
use moves::{HostNeed, Move, Places, by_host, direct, once};
pub use names::nearest_names;
pub use routes::{RankRoute, routes};
use unlike::Unlike;

/// How many pieces the bytes of a source are at least cut into, so that they can be balanced.
const PIECES_PER_SOURCE: u64 = 64;
/// Copies that one message carries at most: the ranges that a system call, or a request of the data
/// port, takes.
pub const COPIES: u32 = 1_024;
/// The smallest piece worth a message of its own, in bytes.
const SMALLEST_PIECE: u64 = 1 << 20;

/// What a transfer takes. Bytes everywhere.
#[derive(Debug, Clone, PartialEq)]
pub struct FleetPlan {
    /// Number of engines.
    pub replicas: u64,
    /// The most that a source rank holds, in its own types.
    pub largest_source: u64,
    /// What each target rank receives, engine by engine: all it holds but padding.
    pub per_target: Vec<u64>,
    /// What each source rank sends if every target rank is sent everything it holds.
    pub per_source: Vec<u64>,
    /// What enters each target host over the network.
    pub host_in: Vec<u64>,
    /// What leaves each source host over the network.
    pub host_out: Vec<u64>,
    /// What each source rank sends over the network, hosts copying what they have already.
    pub network_out: Vec<u64>,
    /// What each target rank receives over the network; the rest it copies from its host.
    pub network_in: Vec<u64>,
    /// Copies from one rank to another over the network: boxes of tensors.
    pub copies: u64,
    /// Messages that carry them: up to [`COPIES`] copies of one source for one target in each.
    pub messages: u64,
    /// The most copies and the most messages of one source.
    pub of_busiest: (u64, u64),
    /// The whole version in the target's types: what a broadcast brings to every rank.
    pub broadcast: u64,
    /// Largest tensor part that a source must convert or quantise before it is sent.
    pub largest_converted: u64,
    /// Bytes that sources convert or quantise.
    pub converted: u64,
    /// What the busiest NIC carries at least in any schedule, replicas relaying and hosts copying.
    pub least: NicBytes,
    /// The same without hosts copying: every rank sends and receives over a NIC of its own.
    pub least_direct: NicBytes,
    /// What is wrong: bytes that no source holds, or that no target takes, or that two write.
    pub defects: Vec<String>,
    /// What the real programs would refuse.
    pub warnings: Vec<String>,
}

/// Plans a version from a source to `replicas` of a target, on hosts of `gpus_per_host` ranks.
pub fn plan(
    source: &Cluster,
    target: &Cluster,
    replicas: u64,
    gpus_per_host: u64,
) -> Result<FleetPlan, RuleError> {
    let (source, target) = &Cluster::alike(source, target)?;
    let (holders, takers) = (Holders::of(source)?.with_tied(source), Holders::of(target)?);
    let total: u64 = takers_bytes(target, &takers)?.saturating_mul(replicas);
    let piece = (total / holders.ranks.max(1) / PIECES_PER_SOURCE).max(SMALLEST_PIECE);
    let targets = takers.ranks * replicas;
    let mut planner = FleetPlanner {
        source,
        target,
        holders: &holders,
        takers: &takers,
        places: Places { ranks: takers.ranks, replicas, gpus_per_host: gpus_per_host.max(1) },
        direct: Balance::new(holders.ranks, targets, piece),
        network: Balance::new(holders.ranks, targets, piece),
        host_in: vec![0; targets.div_ceil(gpus_per_host.max(1)) as usize],
        leaving: Leaving::default(),
        entering: vec![0; targets.div_ceil(gpus_per_host.max(1)) as usize],
        arriving: vec![0; targets as usize],
        largest_converted: 0,
        converted: 0,
        broadcast: 0,
        defects: Vec::new(),
    };
    planner.run();
    Ok(planner.finish())
}

fn takers_bytes(target: &Cluster, takers: &Holders) -> Result<u64, RuleError> {
    (0..takers.ranks).map(|rank| Ok(target.layout(rank)?.transfer_bytes())).sum()
}

/// The plan of a whole fleet, while tensors are being added to it.
struct FleetPlanner<'a> {
    source: &'a Cluster,
    target: &'a Cluster,
    holders: &'a Holders,
    takers: &'a Holders,
    places: Places,
    /// Every target rank is sent everything it holds.
    direct: Balance,
    /// Every host is sent everything it holds.
    network: Balance,
    host_in: Vec<u64>,
    /// What must leave the sources, enter each host, and arrive at each rank in any schedule: bytes in the smaller
    /// type of both sides, since either side may convert.
    leaving: Leaving,
    entering: Vec<u64>,
    arriving: Vec<u64>,
    largest_converted: u64,
    converted: u64,
    broadcast: u64,
    defects: Vec<String>,
}

/// Numbers of the holders and of the takers of a tensor.
type Spread = (Vec<usize>, Vec<usize>);

/// Most defects that are listed.
const LISTED: usize = 8;

impl FleetPlanner<'_> {
    fn run(&mut self) {
        let Unlike { shapes, defects } = Unlike::of(self.source, self.target);
        defects.into_iter().for_each(|defect| self.defect(defect));
        let (target, has) = (self.target, |family: &&Family| !shapes.contains(&*family.name));
        for family in target.families().iter().filter(has) {
            for expert in experts(family) {
                let name = fill(&family.name, None, expert);
                self.tensors(family, &name);
            }
        }
        self.unmatched();
        self.direct.settle();
        self.network.settle();
    }

    /// All tensors of one name: layer by layer.
    fn tensors(&mut self, family: &Family, name: &str) {
        let takers = self.takers.of_tensor(name);
        if takers.is_empty() {
            return;
        }
        let made = sources_of(self.holders, self.target, name);
        let layers: Vec<Option<u64>> = match family.layers.is_empty() {
            true => vec![None],
            false => family.layers.iter().flat_map(|&(a, b)| (a..=b).map(Some)).collect(),
        };
        let here = |held: &'_ [HeldBox], layer| -> Vec<usize> {
            (0..held.len()).filter(|&at| held[at].is_in(layer)).collect()
        };
        let spread = |&layer: &Option<u64>| (here(&made, layer), here(takers, layer));
        let mut alike: Vec<(Spread, Vec<Option<u64>>)> = Vec::new();
        for layer in layers {
            let spread = spread(&layer);
            match alike.last_mut() {
                Some((same, run)) if *same == spread => run.push(layer),
                _ => alike.push((spread, vec![layer])),
            }
        }
        for ((sources, takes), layers) in alike.iter().filter(|((_, takes), _)| !takes.is_empty()) {
            let sources: Vec<&HeldBox> = sources.iter().map(|&at| &made[at]).collect();
            let takes: Vec<&HeldBox> = takes.iter().map(|&at| &takers[at]).collect();
            let name = fill(name, layers[0], None);
            self.tensor(family, &name, &sources, &takes, layers.len() as u64);
        }
    }

    /// A tensor, and as many others that are spread alike.
    fn tensor(
        &mut self,
        family: &Family,
        name: &str,
        sources: &[&HeldBox],
        takers: &[&HeldBox],
        count: u64,
    ) {
        let by_box = groups(sources.iter().map(|held| (held.rank, &held.slice)));
        let takers_by_box = groups(takers.iter().map(|held| (held.rank, &held.slice)));
        let dtype = takers[0].dtype;
        let bytes = |slice: &Slice| slice.volume() * dtype.bits() / 8;
        self.taken_whole(family, name, &takers_by_box);
        let mut cells = Vec::with_capacity(takers_by_box.len());
        for group in &takers_by_box {
            let (of_box, rest) = cut(group.slice, &by_box);
            self.covered(name, group.slice, &of_box, &rest);
            cells.push((group, of_box));
        }
        let moves = direct(&cells, self.places, bytes);
        let entries = by_host(&takers_by_box, &by_box, self.places, bytes);
        (0..count).for_each(|_| self.assign(&by_box, &moves, &entries));
        let smallest = sources.iter().map(|held| held.dtype.bits()).fold(dtype.bits(), u64::min);
        let least = |bytes: u64| count * (bytes * 8 / dtype.bits()) * smallest / 8;
        self.bound(family, &by_box, &once(&takers_by_box, &by_box, bytes), least);
        moves.iter().for_each(|one| self.arriving[one.target as usize] += least(one.bytes));
        entries.iter().for_each(|one| self.entering[one.host as usize] += least(one.bytes));
        self.broadcast += count * bytes(&Slice::full(&family.shape));
        if sources.iter().any(|held| held.dtype != dtype) || family.member == ModuleTensor::Scale {
            let largest = sources.iter().map(|held| bytes(&held.slice)).max().unwrap_or(0);
            self.largest_converted = self.largest_converted.max(largest);
            self.converted += count * by_box.iter().map(|group| bytes(group.slice)).sum::<u64>();
        }
    }

    /// Notes by whom what is taken of a tensor is held. Anybody may make scales, after an exchange.
    fn bound(
        &mut self,
        family: &Family,
        sources: &[BoxHolders<'_>],
        taken: &[(usize, u64)],
        least: impl Fn(u64) -> u64,
    ) {
        if family.member == ModuleTensor::Scale {
            let anybody: Vec<u32> = (0..self.holders.ranks as u32).collect();
            return self.leaving.add(&anybody, least(taken.iter().map(|cell| cell.1).sum()));
        }
        let holders = all_holders(sources, &Slice::full(&family.shape));
        for &(group, bytes) in taken {
            self.leaving.add(&holders[group], least(bytes));
        }
    }

    fn assign(&mut self, sources: &[BoxHolders<'_>], moves: &[Move], entries: &[HostNeed]) {
        let sets: Vec<(u32, u32)> = sources
            .iter()
            .map(|group| (self.direct.set(&group.ranks), self.network.set(&group.ranks)))
            .collect();
        for one in moves {
            self.direct.add(sets[one.group].0, one.target, one.bytes);
        }
        for entry in entries {
            let least = |rank: &&u32| self.network.received[**rank as usize];
            let Some(&to) = entry.receivers.iter().min_by_key(least) else { continue };
            self.network.add(sets[entry.group].1, to, entry.bytes);
            self.host_in[entry.host as usize] += entry.bytes;
        }
    }

    /// Notes what is wrong with the cells of a target's box.
    fn covered(&mut self, name: &str, wanted: &Slice, cells: &[(Slice, usize)], rest: &[Slice]) {
        if let Some(missing) = rest.first() {
            self.defect(format!("{name} {missing} is held by no source"));
        }
        let covered: u64 = cells.iter().map(|cell| cell.0.volume()).sum();
        let left: u64 = rest.iter().map(Slice::volume).sum();
        if covered + left != wanted.volume() {
            self.defect(format!("{name} {wanted} would not be written exactly once"));
        }
    }

    /// Notes what no target takes of a tensor.
    fn taken_whole(&mut self, family: &Family, name: &str, takers: &[BoxHolders<'_>]) {
        let rest = Slice::full(&family.shape).subtract_all(takers.iter().map(|group| group.slice));
        if let Some(lost) = rest.first() {
            self.defect(format!("{name} {lost} reaches no target rank"));
        }
    }

    /// Notes names that one side has and the other does not know.
    fn unmatched(&mut self) {
        let scales = |name: &str| name.ends_with("_scale_inv");
        // A draft may have those of its model in their place.
        let shared = |name: &str| {
            let families = self.target.families().iter();
            let mut drafts = families
                .filter(|f| matches!(f.role, TensorRole::DraftEmbedding | TensorRole::DraftHead));
            drafts.any(|family| family.name == name)
        };
        let tied: BTreeSet<&str> = (0..self.takers.ranks)
            .flat_map(|rank| self.target.tied(rank))
            .flat_map(|record| record.pieces.iter().map(|piece| &*piece.tensor))
            .collect();
        let takes = |name: &str| !self.takers.of_tensor(name).is_empty() || tied.contains(name);
        let unheld = tied.iter().filter(|name| self.holders.of_tensor(name).is_empty());
        let mut lost: Vec<String> =
            unheld.map(|name| format!("{name} is held by no source")).collect();
        for name in self.holders.names() {
            let dequantised = scales(name) && self.target.quantisation().is_none();
            if !takes(name) && !dequantised && !shared(name) {
                lost.push(format!("{name} is held by the source and taken by no target rank"));
            }
        }
        lost.into_iter().for_each(|defect| self.defect(defect));
    }

    fn defect(&mut self, defect: String) {
        if self.defects.len() < LISTED {
            self.defects.push(defect);
        }
    }

    /// What the busiest NIC carries at least, where hosts copy.
    fn least(&self) -> NicBytes {
        let (gpus, targets) = (self.places.gpus_per_host, self.arriving.len() as u64);
        let nics = |host: usize| gpus.min(targets - host as u64 * gpus) as f64;
        let each = |(host, &bytes): (usize, &u64)| bytes as f64 / nics(host);
        NicBytes {
            out: self.leaving.least(self.holders.ranks, gpus),
            into: self.entering.iter().enumerate().map(each).fold(0.0, f64::max),
        }
    }

    fn finish(self) -> FleetPlan {
        let hosts = self.holders.ranks.div_ceil(self.places.gpus_per_host) as usize;
        let mut host_out = vec![0; hosts];
        for (rank, sent) in self.network.sent.iter().enumerate() {
            host_out[rank / self.places.gpus_per_host as usize] += sent;
        }
        let of_sources = self.network.messages(COPIES);
        let mut warnings = self.holders.warnings.clone();
        warnings.extend(self.takers.warnings.iter().cloned());
        FleetPlan {
            replicas: self.places.replicas,
            largest_source: self.holders.most_bytes,
            least: self.least(),
            least_direct: NicBytes {
                out: self.leaving.least(self.holders.ranks, 1),
                into: self.arriving.iter().copied().max().unwrap_or(0) as f64,
            },
            copies: of_sources.iter().map(|of| of.0).sum(),
            messages: of_sources.iter().map(|of| of.1).sum(),
            of_busiest: busiest(&of_sources),
            per_target: self.direct.received,
            per_source: self.direct.sent,
            host_in: self.host_in,
            host_out,
            network_out: self.network.sent,
            network_in: self.network.received,
            broadcast: self.broadcast,
            largest_converted: self.largest_converted,
            converted: self.converted,
            defects: self.defects,
            warnings,
        }
    }
}

/// The most copies and the most messages of one source.
fn busiest(of_sources: &[(u64, u64)]) -> (u64, u64) {
    of_sources.iter().fold((0, 0), |a, b| (a.0.max(b.0), a.1.max(b.1)))
}

/// Who can send a tensor of the target: who holds it, or can make the scales of what it holds.
fn sources_of(holders: &Holders, target: &Cluster, name: &str) -> Vec<HeldBox> {
    let held = holders.of_tensor(name);
    match (target.quantisation(), name.strip_suffix("_scale_inv")) {
        (Some(quantisation), Some(weight)) if held.is_empty() => {
            let weights = holders.of_tensor(weight).iter();
            weights.map(|held| held.scales(quantisation.block)).collect()
        }
        _ => held.to_vec(),
    }
}

/// The experts of a family, or the one tensor that it is.
fn experts(family: &Family) -> Vec<Option<u64>> {
    match family.experts {
        0 => vec![None],
        count => (0..count).map(Some).collect(),
    }
}
