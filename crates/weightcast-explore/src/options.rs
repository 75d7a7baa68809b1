//! The options of the command line.

use clap::{Args, Parser, Subcommand};
use weightcast_explore::{Bounds, FleetBounds, PushBounds, PushFaults};
use weightcast_protocol::Safeguards;

/// Explores every order of events of a small cluster, a small fleet of engines, or a small push.
#[derive(Parser)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ExploreOptions {
    /// What else is explored than a cluster.
    #[command(subcommand)]
    pub(crate) other: Option<ExploreCommand>,
    /// The size of the cluster.
    #[command(flatten)]
    pub(crate) cluster: ClusterSize,
    /// How to search.
    #[command(flatten)]
    pub(crate) search: SearchOptions,
}

/// What else is explored than a cluster.
#[derive(Subcommand)]
pub(crate) enum ExploreCommand {
    /// A fleet of engines, its drivers and its register
    Fleet {
        /// The size of the fleet.
        #[command(flatten)]
        fleet: FleetSize,
        /// How to search.
        #[command(flatten)]
        search: SearchOptions,
    },
    /// A push: its drivers, targets and senders
    Push {
        /// The size of the push.
        #[command(flatten)]
        push: PushSize,
        /// How to search.
        #[command(flatten)]
        search: SearchOptions,
    },
}

/// How to search, whatever is explored.
#[derive(Args)]
pub(crate) struct SearchOptions {
    /// Look at all that must hold, and at what each safeguard is there for
    #[arg(long)]
    pub(crate) suite: bool,
    /// Switch safeguards off, joined by +, and expect a story that shows it
    #[arg(long)]
    pub(crate) mutant: Option<String>,
    /// The names of the safeguards
    #[arg(long)]
    pub(crate) list_mutants: bool,
    /// Look at this invariant alone, such as S1
    #[arg(long)]
    pub(crate) only: Option<String>,
    /// Threads; one gives a shortest story
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: usize,
    /// Stop after so many seconds
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
    /// One line of JSON for each search
    #[arg(long)]
    pub(crate) json: bool,
}

/// The size of a cluster, and what may go wrong.
#[derive(Args)]
pub(crate) struct ClusterSize {
    /// A trainer and one rollout of two shards, instead of two rollouts of one
    #[arg(long)]
    group_of_two: bool,
    /// Leases that the server takes for expired by mistake
    #[arg(long, default_value_t = 1)]
    expiries: u32,
    /// Drain deadlines that pass
    #[arg(long, default_value_t = 0)]
    cuts: u32,
    /// Times that the one server starts anew and knows nothing
    #[arg(long, default_value_t = 0)]
    restarts: u32,
    /// The first of two servers may die for good
    #[arg(long)]
    death: bool,
    /// Workers that lose a server which lives, and go to the other of two
    #[arg(long, default_value_t = 0)]
    partings: u32,
    /// Rollout replicas
    #[arg(long)]
    rollouts: Option<u32>,
    /// Versions that are published
    #[arg(long, default_value_t = 2)]
    versions: u64,
    /// Reads of each rollout
    #[arg(long, default_value_t = 2)]
    reads: u64,
    /// Let messages to the server linger as well
    #[arg(long)]
    slow_up: bool,
}

/// The size of a fleet, and what may go wrong.
#[derive(Args)]
pub(crate) struct FleetSize {
    /// Engines of one worker each
    #[arg(long, default_value_t = 2)]
    engines: u32,
    /// Drivers that die; each has a successor
    #[arg(long, default_value_t = 0)]
    driver_deaths: u32,
    /// Drivers that get a successor although they live
    #[arg(long, default_value_t = 0)]
    splits: u32,
    /// Engines that die; each is started again
    #[arg(long, default_value_t = 0)]
    engine_deaths: u32,
    /// Registers that are lost
    #[arg(long, default_value_t = 0)]
    register_losses: u32,
    /// Timers of drivers that go off
    #[arg(long, default_value_t = 0)]
    timeouts: u32,
    /// Orders and questions that are lost
    #[arg(long, default_value_t = 0)]
    losses: u32,
}

/// The size of a push, and what may go wrong.
#[derive(Args)]
pub(crate) struct PushSize {
    /// Targets, which join while the push runs
    #[arg(long, default_value_t = 1)]
    targets: u32,
    /// Senders, of which each holds all parcels
    #[arg(long, default_value_t = 1)]
    senders: u32,
    /// Parcels of each target
    #[arg(long, default_value_t = 1)]
    parcels: u32,
    /// Successors push the same version again, not the next one
    #[arg(long)]
    again: bool,
    /// What may go wrong.
    #[command(flatten)]
    faults: PushFaults,
}

/// A size that becomes what is explored.
pub(crate) trait ExploredSize<W> {
    /// With these safeguards; with one invariant to look at, or with all.
    fn bounds(self, safeguards: Safeguards, only: Option<&'static str>) -> W;
}

impl ExploredSize<Bounds> for ClusterSize {
    fn bounds(self, safeguards: Safeguards, only: Option<&'static str>) -> Bounds {
        let base = match self.group_of_two {
            true => Bounds::group_of_two(),
            false => Bounds::three_workers(),
        };
        Bounds {
            versions: self.versions,
            reads: self.reads,
            expiries: self.expiries,
            cuts: self.cuts,
            restarts: self.restarts,
            death: self.death,
            partings: self.partings,
            rollouts: self.rollouts.unwrap_or(base.rollouts),
            slow_up: self.slow_up,
            safeguards,
            only,
            ..base
        }
    }
}

impl ExploredSize<FleetBounds> for FleetSize {
    fn bounds(self, safeguards: Safeguards, only: Option<&'static str>) -> FleetBounds {
        FleetBounds {
            engines: self.engines,
            driver_deaths: self.driver_deaths,
            splits: self.splits,
            engine_deaths: self.engine_deaths,
            register_losses: self.register_losses,
            timeouts: self.timeouts,
            losses: self.losses,
            safeguards,
            only,
        }
    }
}

impl ExploredSize<PushBounds> for PushSize {
    fn bounds(self, safeguards: Safeguards, only: Option<&'static str>) -> PushBounds {
        let Self { targets, senders, parcels, again, faults } = self;
        PushBounds { targets, senders, parcels, again, faults, safeguards, only }
    }
}
