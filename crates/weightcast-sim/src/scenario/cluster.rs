//! The machines of a scenario: where each worker runs, and which links lie between two workers.

use std::collections::BTreeMap;

use weightcast_protocol::message::Location;

use super::links::NetworkLink;
use super::setting::{Datacentre, GroupSetting, Setting};

/// Where a worker runs.
#[derive(Clone, Debug)]
pub(super) struct WorkerPlace {
    pub(super) group: String,
    pub(super) replica: u32,
    pub(super) shard: u32,
    pub(super) location: Location,
    /// The worker in whose host this place has CPU memory, if the place is for seeds only.
    pub(super) seeds_for: Option<usize>,
    /// Links to send through: the worker's card, and the host's card to other datacentres.
    sends: [usize; 2],
    /// Links to receive through, in the same order.
    receives: [usize; 2],
}

/// All places, and the links between datacentres that may be narrow.
#[derive(Clone, Debug, Default)]
pub(super) struct Topology {
    pub(super) places: Vec<WorkerPlace>,
    pub(super) links: Vec<NetworkLink>,
    between: BTreeMap<(String, String), usize>,
}

impl Topology {
    pub(super) fn new(setting: &Setting) -> Self {
        let mut cluster = Self::default();
        for link in &setting.links {
            for (from, to) in [(&link.a, &link.b), (&link.b, &link.a)] {
                let index = cluster.link(format!("{from} to {to}"), link.gb_s);
                cluster.between.insert((from.clone(), to.clone()), index);
            }
        }
        for (name, group) in &setting.groups {
            cluster.settle(setting, name, group);
        }
        let seeds = |place: &WorkerPlace| setting.groups[&place.group].offload_seeding;
        let beside = cluster.places.iter().enumerate().filter(|(_, place)| seeds(place));
        let beside: Vec<WorkerPlace> = beside
            .map(|(index, place)| WorkerPlace { seeds_for: Some(index), ..place.clone() })
            .collect();
        cluster.places.extend(beside);
        cluster
    }

    fn link(&mut self, name: String, rate: f64) -> usize {
        self.links.push(NetworkLink { name, rate, bytes: 0.0 });
        self.links.len() - 1
    }

    /// Gives a group hosts of its own, filled one after the other.
    fn settle(&mut self, setting: &Setting, name: &str, group: &GroupSetting) {
        let datacentre = &setting.datacentres[&group.datacentre];
        let mut cards = Vec::new();
        for number in 0..group.replicas * setting.shards {
            let (host, gpu) =
                (number / datacentre.gpus_per_host, number % datacentre.gpus_per_host);
            let host = format!("{name}-host-{host}");
            if gpu == 0 {
                cards = self.host(setting, &host, datacentre);
            }
            let card = gpu * datacentre.nics_per_host / datacentre.gpus_per_host;
            let [inner, outer] = [cards[card as usize], *cards.last().expect("a host has cards")];
            self.places.push(WorkerPlace {
                group: name.to_owned(),
                replica: number / setting.shards,
                shard: number % setting.shards,
                location: Location { datacentre: group.datacentre.clone(), host, spot: group.spot },
                seeds_for: None,
                sends: [inner, outer],
                receives: [inner + 1, outer + 1],
            });
        }
    }

    /// Adds the links of a host's cards, and returns each card's outgoing link; the card to other
    /// datacentres comes last. The incoming link of a card is the next one.
    fn host(&mut self, setting: &Setting, host: &str, datacentre: &Datacentre) -> Vec<usize> {
        let goodput = &setting.goodput;
        let inner = (0..datacentre.nics_per_host)
            .map(|card| (format!("{host} nic {card}"), datacentre.nic_gb_s * goodput.inner));
        let outer = (format!("{host} outer nic"), datacentre.outer_nic_gb_s * goodput.outer);
        let cards: Vec<(String, f64)> = inner.chain([outer]).collect();
        cards
            .into_iter()
            .map(|(name, rate)| {
                let out = self.link(format!("{name} out"), rate);
                self.link(format!("{name} in"), rate);
                out
            })
            .collect()
    }

    /// Whether bytes from one worker to another leave their datacentre.
    pub(super) fn crosses(&self, source: usize, reader: usize) -> bool {
        let datacentre = |worker: usize| &self.places[worker].location.datacentre;
        datacentre(source) != datacentre(reader)
    }

    /// The links from one worker to another.
    pub(super) fn path(&self, source: usize, reader: usize) -> Vec<usize> {
        let [from, to] = [&self.places[source], &self.places[reader]];
        if from.seeds_for.is_some() && from.location.host == to.location.host {
            return vec![to.receives[0]]; // CPU memory of the own host: no card sends it
        }
        if !self.crosses(source, reader) {
            return vec![from.sends[0], to.receives[0]];
        }
        let ends = (from.location.datacentre.clone(), to.location.datacentre.clone());
        let between = self.between.get(&ends).copied();
        [Some(from.sends[1]), between, Some(to.receives[1])].into_iter().flatten().collect()
    }
}
