//! What can be wrong with a scenario.

use thiserror::Error;

use super::setting::{GroupSetting, ScriptStep, Setting, Verb};

/// Most workers of one scenario: the name of a stream has this much room.
const WORKERS: u64 = 1 << 20;

/// Why a scenario can't be played.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum ScenarioError {
    /// The text is not a scenario.
    #[error("not a scenario: {reason}")]
    Syntax {
        /// What is wrong, and where.
        reason: String,
    },
    /// A case makes no sense.
    #[error("case {case:?}: {reason}")]
    Setting {
        /// The case.
        case: String,
        /// What is wrong, and in which field.
        reason: String,
    },
    /// The script was played, but some of its calls never ended.
    #[error("case {case:?}: after {at_s} s of nothing else {waiting} calls still wait, {example}")]
    Unfinished {
        /// The case.
        case: String,
        /// Time of the last event played, in seconds.
        at_s: f64,
        /// How many calls still wait.
        waiting: usize,
        /// One of the waiting calls.
        example: String,
    },
}

impl Setting {
    /// Returns what is wrong with the setting, if anything is.
    pub(super) fn check(&self) -> Result<(), String> {
        positive("shards", self.shards.into())?;
        self.check_numbers()?;
        let mut workers = 0;
        for (name, group) in &self.groups {
            self.check_group(name, group)?;
            let each = if group.offload_seeding { 2 } else { 1 };
            workers += each * u64::from(group.replicas) * u64::from(self.shards);
        }
        if workers > WORKERS {
            return Err(format!("{workers} shards in all, at most {WORKERS} can be played"));
        }
        for link in &self.links {
            for end in [&link.a, &link.b] {
                if !self.datacentres.contains_key(end) {
                    return Err(format!("a link ends at {end}, which is no datacentre"));
                }
            }
            positive("gb_s of a link", link.gb_s)?;
        }
        self.script.iter().try_for_each(|step| self.check_step(step))
    }

    fn check_numbers(&self) -> Result<(), String> {
        let (goodput, latency, protocol) = (&self.goodput, &self.latency, &self.protocol);
        for (what, number) in [
            ("shard_gb", self.shard_gb),
            ("goodput.inner", goodput.inner),
            ("goodput.outer", goodput.outer),
            ("latency.digest_gb_s", latency.digest_gb_s),
            ("protocol.fanout", protocol.fanout.into()),
            ("protocol.host_fanout", protocol.host_fanout.into()),
            ("protocol.depth_limit", protocol.depth_limit.into()),
            ("protocol.lease_s", protocol.lease_s),
            ("latency.control_ms", latency.control_ms),
            ("latency.inner_us", latency.inner_us),
            ("latency.outer_ms", latency.outer_ms),
            ("latency.silence_s", latency.silence_s),
        ] {
            positive(what, number)?;
        }
        for (name, place) in &self.datacentres {
            positive(&format!("gpus_per_host of {name}"), place.gpus_per_host.into())?;
            positive(&format!("nics_per_host of {name}"), place.nics_per_host.into())?;
            positive(&format!("nic_gb_s of {name}"), place.nic_gb_s)?;
            positive(&format!("outer_nic_gb_s of {name}"), place.outer_nic_gb_s)?;
        }
        Ok(())
    }

    fn check_group(&self, name: &str, group: &GroupSetting) -> Result<(), String> {
        if self.datacentres.contains_key(&group.datacentre) {
            return Ok(());
        }
        Err(format!("group {name} is in {}, which is no datacentre", group.datacentre))
    }

    fn check_step(&self, step: &ScriptStep) -> Result<(), String> {
        let Some(group) = self.groups.get(&step.group) else {
            return Err(format!("a step is of group {}, which there is not", step.group));
        };
        let numbers = [step.at_s, step.spread_s, step.every_s.unwrap_or(1.0)];
        if numbers.iter().any(|number| !number.is_finite() || *number < 0.0) {
            return Err("a step's times are not all zero or more".to_owned());
        }
        if let Some(replica) = step.replicas.iter().flatten().find(|r| **r >= group.replicas) {
            return Err(format!(
                "a step is of replica {replica} of {}, which has {}",
                step.group, group.replicas
            ));
        }
        match step.verb {
            Verb::Publish if step.version.is_none() => Err("publish needs a version".to_owned()),
            Verb::Update if step.version.is_none() || step.every_s.is_none_or(|s| s <= 0.0) => {
                Err("update needs a version and every_s above 0".to_owned())
            }
            _ => Ok(()),
        }
    }
}

fn positive(what: &str, number: f64) -> Result<(), String> {
    if number.is_finite() && number > 0.0 && number < 1e9 {
        return Ok(());
    }
    Err(format!("{what} is {number}; it must be above 0 and below 10^9"))
}
