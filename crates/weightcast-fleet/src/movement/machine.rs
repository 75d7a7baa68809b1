//! Machines: what times are predicted from, each figure with its source.

use serde::Serialize;

/// A figure of a machine, and where the figure comes from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Assumed {
    /// Bytes a second, seconds or a share, as the field says.
    pub value: f64,
    /// `measured`, `reported`, `given` or `guess`, and by whom or why.
    pub from: &'static str,
}

/// Hosts, and the ways by which bytes move between and within them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct AssumedMachine {
    /// The name by which options and reports know it.
    pub name: &'static str,
    /// Which ways carry bytes, and whether these are built.
    pub ways: &'static str,
    /// Ranks of a host, and NICs: a rank has one.
    pub gpus_per_host: u64,
    /// Bytes a second of a NIC, in each direction.
    pub nic: Assumed,
    /// Share of a NIC's rate that large messages reach.
    pub goodput: Assumed,
    /// Bytes a second that one rank reads over the network, however fast its NIC is.
    pub network: Assumed,
    /// Bytes a second that one rank reads from another replica of its host.
    pub host: Assumed,
    /// Bytes a second between a rank's GPU and its host's memory; none where weights lie in that memory.
    pub staging: Option<Assumed>,
    /// Bytes a second that a source casts or quantises.
    pub convert: Assumed,
    /// Bytes a second at which an engine goes over what has arrived.
    pub process: Assumed,
    /// Seconds until an engine stands still.
    pub pause: Assumed,
    /// Seconds for a message.
    pub message: Assumed,
    /// Seconds for a copy that is gathered into a message: a range of a scatter list.
    pub copy: Assumed,
}

const NIC: Assumed = Assumed { value: 50e9, from: "guess: 400 Gb/s, a NIC for each rank" };
const GOODPUT: Assumed = Assumed { value: 0.95, from: "guess: headers and acknowledgements" };
const TCP: Assumed = Assumed {
    value: 4.9e9,
    from: "measured: README, Qwen2.5-0.5B over TCP, both ends on 2 cores; not measured on more",
};
const DIRECT: Assumed = Assumed {
    value: 14.5e9,
    from: "measured: README, Qwen2.5-0.5B by process_vm_readv on 2 cores; not measured on more",
};
const CODEC: Assumed = Assumed {
    value: 7.7e9,
    from: "measured: docs/results/plans.md, FP8 blocks on 2 threads; not measured on more",
};
const MEMCPY: Assumed =
    Assumed { value: 12.1e9, from: "measured: docs/results/plans.md, memcpy on 2 threads" };
const PCIE: Assumed = Assumed { value: 50e9, from: "guess: PCIe 5 x16" };
const GPU: Assumed = Assumed { value: 1e12, from: "guess: a third of an H100's memory rate" };
const PAUSE: Assumed = Assumed { value: 0.05, from: "guess: one decoding step of a large model" };
const MESSAGE: Assumed = Assumed { value: 2e-6, from: "guess: a request" };
const COPY: Assumed = Assumed { value: 1e-7, from: "guess: a range of a scatter list" };

/// Weights in the memory of hosts.
const HOST_TCP: AssumedMachine = AssumedMachine {
    name: "host-tcp",
    ways: "TCP between hosts, direct reads within; built",
    gpus_per_host: 8,
    nic: NIC,
    goodput: GOODPUT,
    network: TCP,
    host: DIRECT,
    staging: None,
    convert: CODEC,
    process: MEMCPY,
    pause: PAUSE,
    message: MESSAGE,
    copy: COPY,
};

/// Weights in the memory of GPUs, which what is built cannot read: hosts have copies.
const H100_TCP: AssumedMachine = AssumedMachine {
    name: "h100-tcp",
    ways: "weights staged in host memory; TCP between hosts, direct reads within; built",
    staging: Some(PCIE),
    process: GPU,
    ..HOST_TCP
};

/// What could be: RDMA between the memories of GPUs.
const H100_RDMA: AssumedMachine = AssumedMachine {
    name: "h100-rdma",
    ways: "RDMA between the memories of GPUs, NVLink within hosts; not built",
    network: Assumed {
        value: 36e9,
        from: "reported: 16 GB in 0.44 s between two GPUs (the two-second post)",
    },
    host: Assumed { value: 150e9, from: "guess: a third of NVLink 4" },
    staging: None,
    convert: GPU,
    ..H100_TCP
};

impl AssumedMachine {
    /// Every machine that is described; the first is meant where none is named.
    pub const ALL: [AssumedMachine; 3] = [HOST_TCP, H100_TCP, H100_RDMA];

    /// The machine of this name.
    pub fn named(name: &str) -> Option<AssumedMachine> {
        AssumedMachine::ALL.into_iter().find(|machine| machine.name == name)
    }

    /// Bytes a second that one rank reads over its NIC.
    pub fn network_rate(&self) -> f64 {
        (self.nic.value * self.goodput.value).min(self.network.value).max(1.0)
    }

    /// Where that rate comes from.
    pub fn network_from(&self) -> &'static str {
        match self.nic.value * self.goodput.value < self.network.value {
            true => self.nic.from,
            false => self.network.from,
        }
    }

    /// All figures with their names and units, for people.
    pub fn figures(&self) -> Vec<(&'static str, &'static str, Assumed)> {
        let mut figures = vec![
            ("NIC", "GB/s", self.nic),
            ("goodput of a NIC", "", self.goodput),
            ("network reads of a rank", "GB/s", self.network),
            ("reads within a host", "GB/s", self.host),
        ];
        figures.extend(self.staging.map(|staging| ("staging of a rank", "GB/s", staging)));
        figures.extend([
            ("conversion of a rank", "GB/s", self.convert),
            ("post-processing of a rank", "GB/s", self.process),
            ("pause", "s", self.pause),
            ("message", "s", self.message),
            ("copy within a message", "s", self.copy),
        ]);
        figures
    }
}
