//! What is explored: how many workers, versions and faults.

use std::fmt;

use weightcast_protocol::message::Role;
use weightcast_protocol::mutants::Mutants;

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
    pub mutants: Mutants,
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
            mutants: Mutants::default(),
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
    pub(crate) fn places(&self) -> Vec<Place> {
        let shards = |replica: String, role: Role, num_shards: u32| {
            (0..num_shards).map(move |shard| Place {
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
pub(crate) struct Place {
    pub(crate) replica: String,
    pub(crate) role: Role,
    pub(crate) shard: u32,
    pub(crate) num_shards: u32,
}

/// Switches safeguards off by name; several are joined by `+`.
///
/// # Errors
/// Names the safeguards that there are.
pub fn mutants(names: &str) -> Result<Mutants, String> {
    let mut mutants = Mutants::default();
    if names.is_empty() {
        return Ok(mutants);
    }
    for name in names.split('+').map(str::trim) {
        let switch = match name {
            "no_drain" => &mut mutants.no_drain,
            "no_group_transaction" => &mut mutants.no_group_transaction,
            "no_digest_check" => &mut mutants.no_digest_check,
            "no_commit_fence" => &mut mutants.no_commit_fence,
            "no_source_fence" => &mut mutants.no_source_fence,
            "naive_source_choice" => &mut mutants.naive_source_choice,
            "stale_term_accepted" => &mut mutants.stale_term_accepted,
            "unequal_recovery" => &mut mutants.unequal_recovery,
            "no_recovery_window" => &mut mutants.no_recovery_window,
            _ => {
                return Err(format!(
                    "no safeguard is called {name}; there are {}",
                    NAMES.join(", ")
                ));
            }
        };
        *switch = true;
    }
    Ok(mutants)
}

/// The safeguards that can be switched off.
pub const NAMES: [&str; 9] = [
    "no_drain",
    "no_group_transaction",
    "no_digest_check",
    "no_commit_fence",
    "no_source_fence",
    "naive_source_choice",
    "stale_term_accepted",
    "unequal_recovery",
    "no_recovery_window",
];
