//! What a plan is reported as.

use serde::Serialize;
use weightcast_fleet::movement::{AssumedMachine, Cost, FleetPlan, UpdatePart};

use super::PlannedTransfer;

/// The report. Bytes and seconds.
#[derive(Debug, Serialize)]
pub(crate) struct PlanReport {
    pub(crate) source: String,
    pub(crate) target: String,
    pub(crate) replicas: u64,
    pub(crate) gpus_per_host: u64,
    pub(crate) nic_gbps: f64,
    /// What each target rank receives.
    pub(crate) per_target_bytes: Vec<u64>,
    /// What each source rank sends, if every target rank is sent all that it holds.
    pub(crate) per_source_bytes: Vec<u64>,
    /// What each source rank sends, hosts copying among their ranks what has entered once.
    pub(crate) per_source_network_bytes: Vec<u64>,
    /// What enters and leaves each host, with hosts copying.
    pub(crate) host_bytes_in: Vec<u64>,
    pub(crate) host_bytes_out: Vec<u64>,
    /// Boxes of tensors that go from one rank to another over the network, and the messages in which
    /// they are gathered.
    pub(crate) copies: u64,
    pub(crate) messages: u64,
    /// What a broadcast of the version brings to every rank.
    pub(crate) broadcast_bytes: u64,
    pub(crate) extra_buffer_bytes: Extra,
    pub(crate) peak_staged_bytes: u64,
    /// What the times are predicted from.
    pub(crate) machine: AssumedMachine,
    /// The parts of a whole update, one after the other, and their sum.
    pub(crate) update: Vec<UpdatePart>,
    pub(crate) predicted_s: f64,
    /// What the NICs allow in any schedule, with and without hosts copying.
    pub(crate) lower_bound_s: f64,
    pub(crate) lower_bound_direct_s: f64,
    pub(crate) plan_s: f64,
    /// `exact`, or what is wrong.
    pub(crate) coverage: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<String>,
}

/// Memory beside the weights, on one rank of each side.
#[derive(Debug, Serialize)]
pub(crate) struct Extra {
    pub(crate) source: u64,
    pub(crate) target: u64,
}

impl PlanReport {
    pub(super) fn new(
        transfer: &PlannedTransfer,
        machine: AssumedMachine,
        plan: &FleetPlan,
        cost: &Cost,
        plan_s: f64,
    ) -> PlanReport {
        PlanReport {
            source: transfer.source.to_string(),
            target: transfer.target.to_string(),
            replicas: transfer.replicas,
            gpus_per_host: machine.gpus_per_host,
            nic_gbps: machine.nic.value * 8.0 / 1e9,
            per_target_bytes: plan.per_target.clone(),
            per_source_bytes: plan.per_source.clone(),
            per_source_network_bytes: plan.network_out.clone(),
            host_bytes_in: plan.host_in.clone(),
            host_bytes_out: plan.host_out.clone(),
            copies: plan.copies,
            messages: plan.messages,
            broadcast_bytes: plan.broadcast,
            // Targets receive into the weights themselves.
            extra_buffer_bytes: Extra { source: cost.peak_staged, target: 0 },
            peak_staged_bytes: cost.peak_staged,
            machine,
            update: cost.parts.clone(),
            predicted_s: cost.predicted(),
            lower_bound_s: cost.lower_bound,
            lower_bound_direct_s: cost.lower_bound_direct,
            plan_s,
            coverage: plan.defects.first().cloned().unwrap_or_else(|| "exact".into()),
            warnings: plan.warnings.clone(),
        }
    }

    /// The report for people.
    pub(super) fn table(&self) -> String {
        let spread = |bytes: &[u64]| {
            let (least, most) = (bytes.iter().min(), bytes.iter().max());
            let (least, most) = (least.copied().unwrap_or(0), most.copied().unwrap_or(0));
            match least == most {
                true => gigabytes(most),
                false => format!("{} to {}", gigabytes(least), gigabytes(most)),
            }
        };
        let mut text = format!(
            "{} ({} ranks) -> {} x {} ({} ranks)\n",
            self.source,
            self.per_source_bytes.len(),
            self.replicas,
            self.target,
            self.per_target_bytes.len(),
        );
        for (what, value) in [
            ("each target rank receives", spread(&self.per_target_bytes)),
            ("a broadcast would bring it", gigabytes(self.broadcast_bytes)),
            ("each source rank sends", spread(&self.per_source_bytes)),
            ("  where hosts copy", spread(&self.per_source_network_bytes)),
            ("each target host takes in", spread(&self.host_bytes_in)),
            ("each source host gives out", spread(&self.host_bytes_out)),
            ("messages", format!("{} of {} copies", self.messages, self.copies)),
            ("converted weights staged at most", gigabytes(self.peak_staged_bytes)),
            ("the NICs allow", format!("{:.3} s", self.lower_bound_s)),
            ("  without hosts copying", format!("{:.3} s", self.lower_bound_direct_s)),
            ("planned in", format!("{:.2} s", self.plan_s)),
            ("coverage", self.coverage.clone()),
            ("predicted for the whole update", format!("{:.3} s", self.predicted_s)),
        ] {
            text += &format!("  {what:<34}{value}\n");
        }
        for part in &self.update {
            text += &format!("    {:<32}{:.3} s: {}\n", part.name, part.seconds, part.from);
        }
        text + &assumed(&self.machine)
    }
}

/// The machine that a prediction is for: its ways, and each figure with its source.
fn assumed(machine: &AssumedMachine) -> String {
    let AssumedMachine { name, ways, gpus_per_host, .. } = machine;
    let mut text = format!("  on {name}: hosts of {gpus_per_host} ranks; {ways}\n");
    for (what, unit, figure) in machine.figures() {
        let value = match unit {
            "GB/s" => format!("{} GB/s", figure.value / 1e9),
            _ => format!("{} {unit}", figure.value).trim_end().to_owned(),
        };
        text += &format!("    {what:<32}{value}, {}\n", figure.from);
    }
    text
}

fn gigabytes(bytes: u64) -> String {
    format!("{:.3} GB", bytes as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use weightcast_fleet::movement::NicBytes;

    use super::*;

    fn part(name: &'static str, seconds: f64) -> UpdatePart {
        UpdatePart { name, seconds, from: format!("what {name} takes") }
    }

    fn report(target: &[u64], source: &[u64]) -> PlanReport {
        PlanReport {
            source: "fsdp2:dp=2".to_owned(),
            target: "vllm:tp=2".to_owned(),
            replicas: 3,
            gpus_per_host: 8,
            nic_gbps: 400.0,
            per_target_bytes: target.to_vec(),
            per_source_bytes: source.to_vec(),
            per_source_network_bytes: vec![7_000_000, 9_000_000],
            host_bytes_in: vec![1_000_000_000],
            host_bytes_out: Vec::new(),
            copies: 12,
            messages: 4,
            broadcast_bytes: 5_000_000_000,
            extra_buffer_bytes: Extra { source: 1, target: 0 },
            peak_staged_bytes: 250_000_000,
            machine: AssumedMachine::ALL[1],
            update: vec![part("pause", 0.05), part("transfer", 0.075)],
            predicted_s: 0.125,
            lower_bound_s: 0.0625,
            lower_bound_direct_s: 2.0,
            plan_s: 1.5,
            coverage: "exact".to_owned(),
            warnings: Vec::new(),
        }
    }

    /// Each number of a plan and of its cost is reported under its own name.
    #[test]
    fn a_report_has_every_number_of_its_plan() {
        let transfer = PlannedTransfer {
            config: Some("c.json".into()),
            source: "fsdp2:dp=2".parse().unwrap(),
            target: "vllm:tp=2".parse().unwrap(),
            replicas: 3,
        };
        let plan = |defects: &[&str]| FleetPlan {
            replicas: 3,
            largest_source: 18,
            per_target: vec![1, 2],
            per_source: vec![3],
            host_in: vec![4],
            host_out: vec![5],
            network_out: vec![6],
            network_in: vec![7],
            copies: 8,
            messages: 9,
            of_busiest: (10, 11),
            broadcast: 12,
            largest_converted: 13,
            converted: 14,
            least: NicBytes { out: 15.0, into: 16.0 },
            least_direct: NicBytes::default(),
            defects: defects.iter().map(|defect| (*defect).to_owned()).collect(),
            warnings: vec!["odd".to_owned()],
        };
        let parts = vec![part("pause", 0.125), part("transfer", 0.375)];
        let cost = Cost { parts, lower_bound: 0.25, lower_bound_direct: 0.75, peak_staged: 17 };
        let mut machine = AssumedMachine { gpus_per_host: 4, ..AssumedMachine::ALL[0] };
        machine.nic.value = 100e9 / 8.0;
        for (defects, coverage) in [(&[][..], "exact"), (&["gap", "twice"], "gap")] {
            let report = PlanReport::new(&transfer, machine, &plan(defects), &cost, 1.5);
            let wanted = serde_json::json!({
                "source": transfer.source.to_string(), "target": transfer.target.to_string(),
                "replicas": 3, "gpus_per_host": 4, "nic_gbps": 100.0,
                "per_target_bytes": [1, 2], "per_source_bytes": [3],
                "per_source_network_bytes": [6], "host_bytes_in": [4], "host_bytes_out": [5],
                "copies": 8, "messages": 9, "broadcast_bytes": 12,
                "extra_buffer_bytes": {"source": 17, "target": 0}, "peak_staged_bytes": 17,
                "machine": machine, "predicted_s": 0.5, "update": [
                    {"name": "pause", "seconds": 0.125, "from": "what pause takes"},
                    {"name": "transfer", "seconds": 0.375, "from": "what transfer takes"}],
                "lower_bound_s": 0.25, "lower_bound_direct_s": 0.75,
                "plan_s": 1.5, "coverage": coverage, "warnings": ["odd"],
            });
            assert_eq!(serde_json::to_value(&report).unwrap(), wanted);
        }
    }

    /// Each number stands beside its own name, in its unit.
    #[test]
    fn a_plan_is_told_line_by_line() {
        let text =
            report(&[2_000_000_000, 3_000_000_000, 2_500_000_000], &[4_000_000, 4_000_000]).table();
        let expected = [
            "fsdp2:dp=2 (2 ranks) -> 3 x vllm:tp=2 (3 ranks)",
            "  each target rank receives         2.000 GB to 3.000 GB",
            "  a broadcast would bring it        5.000 GB",
            "  each source rank sends            0.004 GB",
            "    where hosts copy                0.007 GB to 0.009 GB",
            "  each target host takes in         1.000 GB",
            "  each source host gives out        0.000 GB",
            "  messages                          4 of 12 copies",
            "  converted weights staged at most  0.250 GB",
            "  the NICs allow                    0.062 s",
            "    without hosts copying           2.000 s",
            "  planned in                        1.50 s",
            "  coverage                          exact",
            "  predicted for the whole update    0.125 s",
            "    pause                           0.050 s: what pause takes",
            "    transfer                        0.075 s: what transfer takes",
            "  on h100-tcp: hosts of 8 ranks; weights staged in host memory; TCP between hosts, \
             direct reads within; built",
            "    NIC                             50 GB/s, guess: 400 Gb/s, a NIC for each rank",
            "    goodput of a NIC                0.95, guess: headers and acknowledgements",
        ];
        assert_eq!(text.lines().take(expected.len()).collect::<Vec<_>>(), expected);
        let figures: Vec<&str> = text.lines().skip(expected.len() - 2).collect();
        assert_eq!(figures.len(), AssumedMachine::ALL[1].figures().len());
        assert_eq!(
            figures[7],
            "    pause                           0.05 s, guess: one decoding step of a large model"
        );
    }
}
