//! What is explored: how many workers, versions and faults.

use std::fmt;

use weightcast_protocol::message::Role;
use weightcast_protocol::{Safeguard, Safeguards};

/// Chunks of a whole version: two, so that half of one can be old.
pub(crate) const CHUNKS: u32 = 2;

/// The size of the world.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Shards of the trainer.
    pub trainer_shards: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// Shards of each of them.
    pub rollout_shards: u32,
    /// Versions that the trainer publishes.
    pub versions: u64,
    /// Reads of each rollout: it replicates the newest version, then updates.
    pub reads: u64,
    /// Leases that the server takes for expired although the worker lives and acts on them.
    pub expiries: u32,
    /// Drain deadlines that pass although a reader still reads. Not together with failover.
    pub cuts: u32,
    /// Times that the one server starts anew and knows nothing.
    pub restarts: u32,
    /// Whether the first of two servers may die for good.
    pub death: bool,
    /// Workers that lose a server which lives, and go to the other of two.
    pub partings: u32,
    /// Whether a message to the server may stay on its way while other things happen.
    pub slow_up: bool,
    /// Safeguards switched off.
    pub safeguards: Safeguards,
    /// The one invariant to look at; others break earlier when a safeguard is off.
    pub only: Option<&'static str>,
}

impl Bounds {
    /// One trainer and two rollouts of a shard each, two versions, one false expiry.
    pub fn three_workers() -> Self {
        Self {
            trainer_shards: 1,
            rollouts: 2,
            rollout_shards: 1,
            versions: 2,
            reads: 2,
            expiries: 1,
            cuts: 0,
            restarts: 0,
            death: false,
            partings: 0,
            slow_up: false,
            safeguards: Safeguards::default(),
            only: None,
        }
    }

    /// A trainer and one rollout of two shards, two versions, one false expiry.
    pub fn group_of_two() -> Self {
        Self { rollouts: 1, rollout_shards: 2, ..Self::three_workers() }
    }

    /// How many servers the workers know.
    pub(crate) fn servers(&self) -> usize {
        if self.death || self.partings > 0 { 2 } else { 1 }
    }

    /// Whether another server, or another life of one, may take over.
    pub(crate) fn fails_over(&self) -> bool {
        self.restarts > 0 || self.servers() > 1
    }

    /// The workers, in order.
    pub(crate) fn places(&self) -> Vec<ShardPlace> {
        let shards = |replica: String, role: Role, num_shards: u32| {
            (0..num_shards).map(move |shard| ShardPlace {
                replica: replica.clone(),
                role,
                shard,
                num_shards,
            })
        };
        let rollouts = (0..self.rollouts)
            .flat_map(|n| shards(format!("rollout-{n}"), Role::Rollout, self.rollout_shards));
        shards("trainer".to_owned(), Role::Trainer, self.trainer_shards).chain(rollouts).collect()
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = |n: u64, what: &str, ending: &str| match n {
            1 => format!("1 {what}"),
            _ => format!("{n} {what}{ending}"),
        };
        write!(f, "1 trainer, {}", count(self.rollouts.into(), "rollout", "s"))?;
        write!(f, " of {}", count(self.rollout_shards.into(), "shard", "s"))?;
        write!(f, ", {}", count(self.versions, "version", "s"))?;
        write!(f, ", {} each", count(self.reads, "read", "s"))?;
        let faults = [
            (self.expiries, "false expir", if self.expiries == 1 { "y" } else { "ies" }),
            (self.cuts, "drain deadline", ""),
            (self.restarts, "restart of the server", ""),
            (self.death.into(), "of 2 servers dies", ""),
            (self.partings, "parting from the first of 2 servers", ""),
        ];
        for (n, what, ending) in faults.into_iter().filter(|(n, ..)| *n > 0) {
            write!(f, ", {n} {what}{ending}")?;
        }
        Ok(())
    }
}

/// Which shard of which replica a worker is.
#[derive(Clone, Debug)]
pub(crate) struct ShardPlace {
    pub(crate) replica: String,
    pub(crate) role: Role,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
}

/// The safeguards that can be switched off, by what their absence is called.
pub const MUTANTS: [(&str, Safeguard); 9] = [
    ("no_drain", Safeguard::Drain),
    ("no_group_transaction", Safeguard::GroupTransaction),
    ("no_digest_check", Safeguard::DigestCheck),
    ("no_commit_fence", Safeguard::CommitFence),
    ("no_source_fence", Safeguard::SourceFence),
    ("naive_source_choice", Safeguard::AcyclicChoice),
    ("stale_term_accepted", Safeguard::TermOrder),
    ("unequal_recovery", Safeguard::EqualRecovery),
    ("no_recovery_window", Safeguard::RecoveryWindow),
];

/// Switches safeguards off by name; several are joined by `+`.
///
/// # Errors
/// Names the mutants that there are.
pub fn without(names: &str) -> Result<Safeguards, String> {
    switched_off(&MUTANTS, names)
}

/// The same of any list of mutants.
pub(crate) fn switched_off(
    mutants: &[(&str, Safeguard)],
    names: &str,
) -> Result<Safeguards, String> {
    let mut names = names.split('+').map(str::trim).filter(|name| !name.is_empty());
    names.try_fold(Safeguards::default(), |safeguards, name| {
        let found = mutants.iter().find(|(known, _)| *known == name);
        let (_, off) = found.ok_or_else(|| {
            let known: Vec<&str> = mutants.iter().map(|(known, _)| *known).collect();
            format!("no mutant is called {name}; there are {}", known.join(", "))
        })?;
        Ok(safeguards.without(&[*off]))
    })
}
