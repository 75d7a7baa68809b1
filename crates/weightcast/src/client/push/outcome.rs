//! What a push is asked for, and what became of it.

use std::time::Duration;

use weightcast_protocol::Version;
use weightcast_protocol::push::TargetEnd;

/// What is pushed, to whom, and how long that may take.
#[derive(Clone, Debug, PartialEq)]
pub struct PushTerms {
    /// The number of the version; `None`: the one that the handle holds.
    pub version: Option<u64>,
    /// Replicas by name, each of which is waited for; `None`: all rollouts of the model that accept while the push runs.
    pub to: Option<Vec<String>>,
    /// How long the push may take, and at each target.
    pub deadline: Duration,
    /// How long a sender may bring a target nothing before another holder writes in its place.
    pub patience: Duration,
}

impl Default for PushTerms {
    /// The held version to all rollouts that accept, within a minute.
    fn default() -> Self {
        let (deadline, patience) = (Duration::from_secs(60), Duration::from_secs(5));
        Self { version: None, to: None, deadline, patience }
    }
}

/// How a push ended at one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PushEnd {
    /// The shard holds the version now.
    New,
    /// The shard held the version before.
    Held,
    /// The shard is there, and did not accept.
    Declined,
    /// No such replica has registered memory.
    Absent,
    /// Whatever the machines say, but that the target is ready.
    Ended(TargetEnd),
}

impl PushEnd {
    /// The end's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::New | Self::Ended(TargetEnd::Ready) => "new",
            Self::Held => "held",
            Self::Declined => "declined",
            Self::Absent => "absent",
            Self::Ended(end) => end.name(),
        }
    }

    /// Whether the shard holds the version.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::New | Self::Held)
    }
}

/// How a shard would get a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PushWay {
    /// Those that hold the version would write it.
    Push,
    /// The shard would have to read the version itself.
    Pull,
    /// The shard needs nothing, or is not there, or cannot be filled.
    Neither,
}

impl PushWay {
    /// The way's name, as programs read it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Push => "push",
            Self::Pull => "pull",
            Self::Neither => "neither",
        }
    }
}

/// What a push would do at one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct PushOutlook {
    /// The replica's name.
    pub replica: String,
    /// The shard's number.
    pub shard: u32,
    /// How the shard would get the version.
    pub way: PushWay,
    /// Bytes that would be written into its memory.
    pub bytes: u64,
    /// Why, for people.
    pub why: String,
}

/// What became of one shard.
#[derive(Clone, Debug, PartialEq)]
pub struct PushedShard {
    /// The replica's name.
    pub replica: String,
    /// The shard's number.
    pub shard: u32,
    /// How the push ended there.
    pub end: PushEnd,
    /// Bytes that were written into its memory.
    pub bytes: u64,
    /// From the shard's consent on.
    pub seconds: f64,
    /// How often a parcel moved from one sender to another.
    pub moved: u32,
    /// For people, where there is more to say.
    pub detail: String,
}

/// What became of a push.
#[derive(Clone, Debug, PartialEq)]
pub struct Pushed {
    /// The version.
    pub version: Version,
    /// By replica and shard.
    pub shards: Vec<PushedShard>,
}

impl Pushed {
    /// Whether every shard that was to have the version has it, and there was one.
    pub fn is_whole(&self) -> bool {
        !self.shards.is_empty() && self.shards.iter().all(|shard| shard.end.is_good())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightcast_protocol::Epoch;

    #[test]
    fn a_push_is_whole_if_every_shard_has_the_version() {
        let version = Version { epoch: Epoch(1), number: 2 };
        let (new, held) = (PushEnd::New, PushEnd::Held);
        let left = PushEnd::Ended(TargetEnd::Left);
        for (ends, whole) in [
            (&[][..], false),
            (&[new], true),
            (&[held, new], true),
            (&[new, PushEnd::Declined], false),
            (&[PushEnd::Absent, held], false),
            (&[left], false),
        ] {
            let shard = |end: &PushEnd| PushedShard {
                replica: "rollout".to_owned(),
                shard: 0,
                end: *end,
                bytes: 0,
                seconds: 0.0,
                moved: 0,
                detail: String::new(),
            };
            let pushed = Pushed { version, shards: ends.iter().map(shard).collect() };
            assert_eq!(pushed.is_whole(), whole, "{ends:?}");
        }
    }

    /// Programs read these.
    #[test]
    fn ends_and_ways_have_names() {
        let ended = PushEnd::Ended;
        let ends = [PushEnd::New, PushEnd::Held, PushEnd::Declined, PushEnd::Absent];
        let names = ends.map(PushEnd::name);
        assert_eq!(names, ["new", "held", "declined", "absent"]);
        assert_eq!(ended(TargetEnd::Ready).name(), "new");
        assert_eq!(ended(TargetEnd::NoHolder).name(), "no_holder");
        let ways = [PushWay::Push, PushWay::Pull, PushWay::Neither].map(PushWay::name);
        assert_eq!(ways, ["push", "pull", "neither"]);
        let terms = PushTerms::default();
        assert_eq!((terms.version, &terms.to), (None, &None));
        let seconds = (terms.deadline.as_secs(), terms.patience.as_secs());
        assert_eq!(seconds, (60, 5));
    }
}
