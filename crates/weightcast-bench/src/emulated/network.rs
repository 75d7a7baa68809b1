//! Hosts on one machine. Each is a namespace with a veth to a bridge and a `tbf` for each
//! direction.
//!
//! The bridges are in a namespace of their own, so the machine's own network is not touched. Two
//! datacentres are two bridges with one slow link between them.

use std::io::Write;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::sweeper::Sweeper;

/// Burst of a limit. Below 96 KiB the kernel segments packets in software, and both cores saturate.
const BURST: &str = "128kb";
/// The network of all hosts.
const SUBNET: &str = "10.77.0.0/16";
/// Longest wait in a link's queue.
const QUEUE: &str = "50ms";
/// Share of a set rate that TCP delivers. Headers and acknowledgements cost the rest.
pub(crate) const GOODPUT: f64 = 0.956;

/// The emulated network. It is removed when this value is dropped, or when this process dies.
pub(crate) struct EmulatedNetwork {
    prefix: String,
    hosts: usize,
    _sweeper: Sweeper,
}

/// How to build an emulated network.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Datacentre of each host, 0 or 1.
    pub(crate) hosts: Vec<usize>,
    /// Rate of a host's link in each direction, as `tc` writes it: `400mbit`.
    pub(crate) rate: String,
    /// Rate between the datacentres.
    pub(crate) slow: String,
}

impl EmulatedNetwork {
    /// Builds the network.
    ///
    /// # Errors
    /// Says what is missing: root, `ip`, `tc`, or something that the kernel lacks.
    pub(crate) fn build(shape: &Shape) -> Result<Self> {
        check()?;
        let prefix = format!("wc{}", std::process::id());
        let sweeper = Sweeper::start(&prefix)?;
        let network = Self { prefix, hosts: shape.hosts.len(), _sweeper: sweeper };
        let hub = network.hub();
        let mut namespaces = format!("netns add {hub}\n");
        let mut links = String::new();
        for bridge in [0, 1] {
            links += &format!("link add br{bridge} type bridge\nlink set br{bridge} up\n");
        }
        links += "link add slow0 type veth peer name slow1\n";
        for side in [0, 1] {
            links += &format!("link set slow{side} master br{side}\nlink set slow{side} up\n");
        }
        let mut limits = String::new();
        for side in [0, 1] {
            limits += &limit(&format!("slow{side}"), &shape.slow);
        }
        let server = network.server();
        namespaces += &format!("netns add {server}\n");
        links += &plug("vs", 0, &server);
        for (host, datacentre) in shape.hosts.iter().enumerate() {
            namespaces += &format!("netns add {}\n", network.host(host));
            links += &plug(&format!("v{host}"), *datacentre, &network.host(host));
            limits += &limit(&format!("v{host}"), &shape.rate);
        }
        batch("ip", &[], &namespaces)?;
        batch("ip", &["-n", &hub], &links)?;
        batch("tc", &["-n", &hub], &limits)?;
        network.furnish(&server, &network.server_address(), None)?;
        for host in 0..network.hosts {
            network.furnish(&network.host(host), &network.address(host), Some(&shape.rate))?;
        }
        Ok(network)
    }

    /// Sets the addresses of a namespace, and the rate at which it sends.
    fn furnish(&self, namespace: &str, address: &str, rate: Option<&str>) -> Result<()> {
        // The route names cubic: the machine's default congestion control may pace itself by its
        // own estimates.
        let up = format!(
            "addr add {address}/16 dev eth0\nlink set eth0 up\nlink set lo up\n\
             route change {SUBNET} dev eth0 proto kernel scope link src {address} congctl cubic\n"
        );
        batch("ip", &["-n", namespace], &up)?;
        if let Some(rate) = rate {
            batch("tc", &["-n", namespace], &limit("eth0", rate))?;
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    /// The namespace of the reference server; its link has no limit.
    pub(crate) fn server(&self) -> String {
        format!("{}-server", self.prefix)
    }

    /// The namespace of a host.
    pub(crate) fn host(&self, host: usize) -> String {
        format!("{}-h{host}", self.prefix)
    }

    /// The address of the reference server.
    pub(crate) fn server_address(&self) -> String {
        "10.77.255.1".to_owned()
    }

    /// The address of a host.
    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.77.{}.{}", host / 200, host % 200 + 1)
    }

    /// Takes a host's link down or up.
    pub(crate) fn set_link(&self, host: usize, up: bool) -> Result<()> {
        let state = if up { "up" } else { "down" };
        batch("ip", &["-n", &self.hub()], &format!("link set v{host} {state}\n"))
    }

    /// Changes the rate at which a host receives.
    pub(crate) fn set_rate(&self, host: usize, rate: &str) -> Result<()> {
        let change = limit(&format!("v{host}"), rate).replacen("add", "change", 1);
        batch("tc", &["-n", &self.hub()], &change)
    }

    /// Changes the rate at which a host sends.
    pub(crate) fn set_sending_rate(&self, host: usize, rate: &str) -> Result<()> {
        let change = limit("eth0", rate).replacen("add", "change", 1);
        batch("tc", &["-n", &self.host(host)], &change)
    }

    /// Bytes that have been sent from datacentre 0 to datacentre 1.
    pub(crate) fn crossed(&self) -> Result<u64> {
        self.sent_on("slow0")
    }

    /// Bytes that have come in on a host's link.
    pub(crate) fn received(&self, host: usize) -> Result<u64> {
        self.sent_on(&format!("v{host}"))
    }

    /// What a port of the hub has sent.
    fn sent_on(&self, port: &str) -> Result<u64> {
        let count = format!("/sys/class/net/{port}/statistics/tx_bytes");
        let output = Command::new("ip")
            .args(["netns", "exec", &self.hub(), "cat", &count])
            .output()
            .context("read an interface's counters")?;
        let text = String::from_utf8_lossy(&output.stdout);
        text.trim().parse().with_context(|| format!("{count} holds {text:?}"))
    }
}

/// Commands for a cable from a host's `eth0` to a port of the hub.
fn plug(port: &str, bridge: usize, namespace: &str) -> String {
    format!(
        "link add {port} type veth peer name eth0 netns {namespace}\n\
         link set {port} master br{bridge}\nlink set {port} up\n"
    )
}

fn limit(device: &str, rate: &str) -> String {
    format!("qdisc add dev {device} root tbf rate {rate} burst {BURST} latency {QUEUE}\n")
}

/// Fails if this machine can't emulate hosts.
pub(crate) fn check() -> Result<()> {
    const HOW: &str = "emulated hosts need root and iproute2: run it as `sudo weightcast bench …`, \
                       in a container with --privileged";
    ensure!(rustix::process::geteuid().is_root(), "not root; {HOW}");
    for tool in ["ip", "tc"] {
        let mut ask = Command::new(tool);
        let found = ask.arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        ensure!(found.is_ok(), "the command {tool} is missing; {HOW}");
    }
    Ok(())
}

/// Runs many commands of `ip` or `tc` in one process.
fn batch(tool: &str, arguments: &[&str], commands: &str) -> Result<()> {
    let mut command = Command::new(tool);
    command.args(arguments).args(["-batch", "-"]);
    batch_of(&mut command, commands, &format!("{tool} {}", arguments.join(" ")))
}

fn batch_of(command: &mut Command, input: &str, what: &str) -> Result<()> {
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().with_context(|| format!("run {what}"))?;
    let mut stdin = process.stdin.take().context("a piped standard input")?;
    stdin.write_all(input.as_bytes()).with_context(|| format!("run {what}"))?;
    drop(stdin);
    let output = process.wait_with_output().with_context(|| format!("run {what}"))?;
    if !output.status.success() {
        bail!("{what} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
