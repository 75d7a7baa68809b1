//! The least that NICs carry: against a count of every element over every set of hosts, and against schedules.

use crate::common;
use std::collections::{BTreeMap, BTreeSet};

use crate::common::elements::{Element, boxes, cluster, dense, elements, scenes, shapes};
use serde_json::json;
use weightcast_fleet::movement::{self, AssumedMachine, Cost, FleetPlan, NicBytes};
use weightcast_fleet::{Cluster, Spec};

/// Who holds each element, and in how many bytes; scales that are made are held by nobody.
struct Elements {
    held: BTreeMap<Element, (BTreeSet<u64>, u64)>,
    wanted: BTreeMap<u64, BTreeMap<Element, u64>>,
}

impl Elements {
    fn of(source: &Cluster, target: &Cluster, replicas: u64) -> Elements {
        let shapes = shapes(target.model().expect("by rule"));
        let mut all = Elements { held: BTreeMap::new(), wanted: BTreeMap::new() };
        for rank in 0..source.ranks() {
            for (name, slice, dtype) in boxes(source, rank) {
                for element in elements(&slice, &shapes[&name]) {
                    let held = all.held.entry((name.clone(), element)).or_default();
                    held.0.insert(rank);
                    held.1 = dtype.bits() / 8;
                }
            }
        }
        for rank in 0..target.ranks() {
            for (name, slice, dtype) in boxes(target, rank) {
                for element in elements(&slice, &shapes[&name]) {
                    for replica in 0..replicas {
                        let to = all.wanted.entry(replica * target.ranks() + rank).or_default();
                        to.insert((name.clone(), element), dtype.bits() / 8);
                    }
                }
            }
        }
        all
    }

    /// Bytes of an element in the smaller type of both sides.
    fn bytes(&self, element: &Element, wanted: u64) -> u64 {
        self.held.get(element).map_or(wanted, |held| held.1.min(wanted))
    }

    /// What enters the busiest NIC, where `per_unit` ranks share what they have.
    fn entering(&self, per_unit: u64) -> f64 {
        let mut units: BTreeMap<u64, BTreeMap<Element, u64>> = BTreeMap::new();
        let mut ranks: BTreeMap<u64, u64> = BTreeMap::new();
        for (rank, wanted) in &self.wanted {
            *ranks.entry(rank / per_unit).or_default() += 1;
            units.entry(rank / per_unit).or_default().extend(wanted.clone());
        }
        let of = |(unit, wanted): (&u64, &BTreeMap<Element, u64>)| {
            let bytes: u64 = wanted.iter().map(|(element, size)| self.bytes(element, *size)).sum();
            bytes as f64 / ranks[unit] as f64
        };
        units.iter().map(of).fold(0.0, f64::max)
    }

    /// What leaves the busiest NIC: by each set of units, and by each unit alone and all together.
    fn leaving(&self, ranks: u64, per_unit: u64) -> (f64, f64) {
        let units = ranks.div_ceil(per_unit);
        let wanted: BTreeMap<&Element, u64> =
            self.wanted.values().flatten().map(|(element, size)| (element, *size)).collect();
        let mut by_units: BTreeMap<u64, u64> = BTreeMap::new();
        for (element, size) in wanted {
            let holders = self.held.get(element).map(|held| &held.0);
            let bits =
                holders.map(|ranks| ranks.iter().fold(0, |all, r| all | 1 << (r / per_unit)));
            *by_units.entry(bits.unwrap_or((1 << units) - 1)).or_default() +=
                self.bytes(element, size);
        }
        let of = |bits: u64| {
            let within = by_units.iter().filter(|(holders, _)| *holders & !bits == 0);
            let nics = (0..ranks).filter(|rank| bits >> (rank / per_unit) & 1 == 1).count();
            within.map(|(_, bytes)| bytes).sum::<u64>() as f64 / nics as f64
        };
        let best = (1..1 << units).map(of).fold(0.0, f64::max);
        let simple = (0..units).map(|unit| of(1 << unit)).fold(of((1 << units) - 1), f64::max);
        (simple, best)
    }
}

#[test]
fn the_least_is_what_counting_elements_over_sets_of_hosts_says() {
    for (config, trainer, engine, replicas, gpus) in scenes() {
        let at = format!("{trainer} to {replicas} x {engine} on hosts of {gpus}");
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        let plan = movement::plan(&source, &target, replicas, gpus).expect("a plan");
        let all = Elements::of(&source, &target, replicas);
        for (least, per_unit) in [(plan.least, gpus), (plan.least_direct, 1)] {
            let (simple, best) = all.leaving(source.ranks(), per_unit);
            assert!((least.into - all.entering(per_unit)).abs() < 1e-9, "{at}: {least:?}");
            assert!(
                least.out <= best + 1e-9 && least.out >= simple - 1e-9,
                "{at}: {least:?} {best}"
            );
        }
        assert_beaten_by_no_plan(&plan, &at);
    }
}

/// The plan's own sends and receives are a schedule.
fn assert_beaten_by_no_plan(plan: &FleetPlan, at: &str) {
    let most = |bytes: &[u64]| bytes.iter().copied().max().expect("ranks") as f64;
    let NicBytes { out, into } = plan.least;
    assert!(out <= most(&plan.network_out) && into <= most(&plan.network_in), "{at}: {plan:?}");
    let NicBytes { out, into } = plan.least_direct;
    assert!(out <= most(&plan.per_source) && into <= most(&plan.per_target), "{at}: {plan:?}");
}

fn of_data_set(model: &str, source: &str, target: &str, replicas: u64) -> FleetPlan {
    let model = common::model(model);
    let side = |spec: &str| Cluster::new(&model, &spec.parse::<Spec>().expect("a spec"));
    movement::plan(&side(source).expect("ranks"), &side(target).expect("ranks"), replicas, 8)
        .expect("a plan")
}

/// Llama-70B from 8 ranks to 64 engines of 8: 141 GB leave over 8 NICs once, since engines can relay.
#[test]
fn a_version_leaves_the_trainers_once_however_many_engines_there_are() {
    let one = of_data_set("llama-3.1-70b", "fsdp2:dp=8", "vllm:tp=8", 1);
    let many = of_data_set("llama-3.1-70b", "fsdp2:dp=8", "vllm:tp=8", 64);
    let bound = |plan: &FleetPlan| Cost::of(plan, &AssumedMachine::ALL[0], 0).lower_bound;
    assert!((bound(&many) - 0.3528).abs() < 5e-4, "{}", bound(&many));
    assert!((bound(&many) - bound(&one)).abs() < 1e-3, "{} {}", bound(&one), bound(&many));
    // Trainers alone would send 64 times as much.
    let alone = many.network_out.iter().copied().max().expect("ranks") as f64 / 50e9;
    assert!(alone > 60.0 * bound(&many), "{alone}");
    // A chain of hosts with pieces of a thousandth ends hardly later than the bound, and not before.
    let chain = one.host_in[0] as f64 / (8.0 * 50e9) * (1.0 + 63.0 / 1_000.0);
    assert!((bound(&many)..1.07 * bound(&many)).contains(&chain), "{chain}");
}

/// Weights that a side holds in fewer bytes may travel so: F32 of a trainer as BF16, BF16 as a router's F32.
#[test]
fn elements_travel_in_the_smaller_type() {
    let config = dense(json!({}));
    let least = |trainer: &str, engine: &str| {
        let (source, target) = (cluster(&config, trainer), cluster(&config, engine));
        movement::plan(&source, &target, 1, 1).expect("a plan").least
    };
    let plain = least("ddp:dp=1", "vllm:tp=1");
    assert_eq!(least("ddp:dp=1,dtype=fp32", "vllm:tp=1"), plain);
    assert_eq!(least("ddp:dp=1", "vllm:tp=1,dtype=fp32"), plain);
    assert_eq!(least("ddp:dp=1,dtype=fp32", "vllm:tp=1,dtype=fp32").out, 2.0 * plain.out);
}
