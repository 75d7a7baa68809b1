//! What is explored: how many workers, versions and faults.

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
    /// Leases that the server takes for expired although the worker lives and acts on them.
    pub expiries: u32,
    /// Drain deadlines that pass although a reader still reads.
    pub cuts: u32,
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
            expiries: 1,
            cuts: 0,
            slow_up: false,
            mutants: Mutants::default(),
            only: None,
        }
    }

    /// A trainer and one rollout of two shards, two versions, one false expiry.
    pub fn group_of_two() -> Self {
        Self { rollouts: 1, rollout_shards: 2, ..Self::three_workers() }
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
pub const NAMES: [&str; 6] = [
    "no_drain",
    "no_group_transaction",
    "no_digest_check",
    "no_commit_fence",
    "no_source_fence",
    "naive_source_choice",
];
