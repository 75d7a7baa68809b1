//! Which data ports a reader connects to. A source names its address through the server, and any
//! holder of the token may name any address. A reader must not be sent to places that only the
//! reader can reach.

use std::net::{IpAddr, SocketAddr};

use crate::config::{Options, is_of_this_host};
use crate::error::Error;

/// The addresses that may be connected to.
#[derive(Clone, Debug)]
pub(crate) struct Networks {
    /// The networks that the job lists, if it lists any.
    listed: Option<Vec<NetworkPrefix>>,
    /// Whether loopback is allowed: the job is on this host.
    loopback: bool,
}

impl Networks {
    /// The configured networks, for a client of these servers. `own` is the client's own data port:
    /// where that is bound to loopback, its peers are on this host as well.
    ///
    /// # Errors
    /// A listed network is malformed.
    pub(crate) fn new(
        options: &Options,
        servers: &str,
        own: Option<SocketAddr>,
    ) -> Result<Self, Error> {
        let listed = options.data_networks().map(|listed| parse(&listed)).transpose()?;
        let own = own.is_some_and(|own| own.ip().to_canonical().is_loopback());
        Ok(Self { listed, loopback: own || servers.split(',').any(is_local) })
    }

    /// Checks that a reader may connect to a data port.
    ///
    /// # Errors
    /// Why not, and what to do about it.
    pub(crate) fn check(&self, port: SocketAddr) -> Result<(), String> {
        let Some(why) = self.refusal(port.ip().to_canonical()) else { return Ok(()) };
        Err(format!(
            "the source names the data port {port}, {why}: have it bind or advertise an address of \
             the job, or list its network in WEIGHTCAST_DATA_NETWORKS"
        ))
    }

    /// Why a reader must not connect to this address, in its canonical form; `None` if it may.
    pub(crate) fn refusal(&self, ip: IpAddr) -> Option<&'static str> {
        let nowhere = ip.is_unspecified() || ip.is_multicast() || is_broadcast(ip);
        let listed = self.listed.as_ref().map(|listed| listed.iter().any(|net| net.holds(ip)));
        match listed {
            _ if nowhere => Some("which is no host's"),
            Some(true) => None,
            _ if ip.is_loopback() && self.loopback => None,
            _ if ip.is_loopback() => Some("which is this very host, while the job is elsewhere"),
            Some(false) => Some("which is in none of the networks that are listed"),
            None if is_link_local(ip) => Some("which is link-local"),
            None => None,
        }
    }
}

fn is_broadcast(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.is_broadcast())
}

/// Link-local addresses: among others, those of the metadata services of clouds.
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// Whether a server is on this host, as its address says: loopback, a socket, or this host's name.
fn is_local(server: &str) -> bool {
    let own = rustix::system::uname();
    let server = server.trim();
    let rest = server.split_once("://").map_or(server, |(_, rest)| rest);
    let host = rest.rsplit_once(':').map_or(rest, |(host, _)| host);
    is_of_this_host(server) || host.as_bytes() == own.nodename().to_bytes()
}

/// `ADDRESS/BITS`, or an address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct NetworkPrefix {
    address: IpAddr,
    bits: u32,
}

impl NetworkPrefix {
    /// The bits of an address that name its network; `bits` is the length of the address.
    fn prefix(self, address: u128, bits: u32) -> u128 {
        address.checked_shr(bits - self.bits).unwrap_or(0)
    }

    fn holds(self, ip: IpAddr) -> bool {
        match (self.address, ip) {
            (IpAddr::V4(net), IpAddr::V4(ip)) => {
                self.prefix(net.to_bits().into(), 32) == self.prefix(ip.to_bits().into(), 32)
            }
            (IpAddr::V6(net), IpAddr::V6(ip)) => {
                self.prefix(net.to_bits(), 128) == self.prefix(ip.to_bits(), 128)
            }
            _ => false,
        }
    }
}

fn parse(listed: &str) -> Result<Vec<NetworkPrefix>, Error> {
    let networks = listed.split(',').map(str::trim).filter(|network| !network.is_empty());
    let parsed = networks.map(|network| {
        parse_one(network).ok_or_else(|| Error::Config {
            what: "data networks".to_owned(),
            problem: format!("{network:?} is not ADDRESS/BITS, such as 10.0.0.0/8 or fd00::/8"),
        })
    });
    parsed.collect()
}

fn parse_one(network: &str) -> Option<NetworkPrefix> {
    let (address, bits) = match network.split_once('/') {
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
        None => (network, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(most);
    (bits <= most).then_some(NetworkPrefix { address, bits })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    fn networks(listed: &str, servers: &str, own: Option<&str>) -> Networks {
        let listed = (!listed.is_empty()).then(|| listed.to_owned());
        let options = Options { data_networks: listed, ..Options::new(Role::Rollout) };
        Networks::new(&options, servers, own.map(|own| own.parse().unwrap())).unwrap()
    }

    fn allowed<'a>(networks: &Networks, ports: &[&'a str]) -> Vec<&'a str> {
        let mut ports = ports.to_vec();
        ports.retain(|port| networks.check(port.parse().unwrap()).is_ok());
        ports
    }

    const ELSEWHERE: &str = "http://10.1.2.3:7700";
    const NOWHERE: [&str; 6] = [
        "0.0.0.0:1",
        "[::]:1",
        "224.0.0.1:1",
        "255.255.255.255:1",
        "[ff02::1]:1",
        "[::ffff:0.0.0.0]:1",
    ];
    const LINK: [&str; 3] = ["169.254.169.254:80", "[fe80::1]:1", "[::ffff:169.254.1.1]:1"];
    const LOOPBACK: [&str; 3] = ["127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.9]:1"];
    const HOSTS: [&str; 4] = ["10.1.2.3:1", "192.168.1.1:1", "8.8.8.8:1", "[2001:db8::1]:1"];

    #[test]
    fn by_default_hosts_but_nobodys_own_places() {
        let far = networks("", ELSEWHERE, Some("10.1.2.4:9"));
        assert_eq!(allowed(&far, &HOSTS), HOSTS);
        for never in [&NOWHERE[..], &LINK, &LOOPBACK] {
            assert!(allowed(&far, never).is_empty(), "{never:?}");
        }
        let why = far.check("169.254.169.254:80".parse().unwrap()).unwrap_err();
        assert!(why.contains("169.254.169.254:80") && why.contains("WEIGHTCAST_DATA_NETWORKS"));
    }

    #[test]
    fn loopback_where_the_job_is_on_this_host() {
        let local = ["unix:/run/w.sock", "http://127.0.0.1:7", "http://[::1]:7", "localhost:7"];
        for servers in local.into_iter().chain(["http://10.1.2.3:7, http://localhost:7"]) {
            assert_eq!(allowed(&networks("", servers, None), &LOOPBACK), LOOPBACK, "{servers}");
        }
        let bound_here = networks("", "http://trainer-0:7700", Some("127.0.0.1:9"));
        assert_eq!(allowed(&bound_here, &LOOPBACK), LOOPBACK);
        for servers in [ELSEWHERE, "http://localhost.example:7", "http://127.example:7"] {
            assert!(allowed(&networks("", servers, None), &LOOPBACK).is_empty(), "{servers}");
        }
    }

    #[test]
    fn what_is_listed_and_nothing_else() {
        let listed = networks("10.0.0.0/8, 169.254.0.0/16,2001:db8::/33", ELSEWHERE, None);
        assert_eq!(allowed(&listed, &HOSTS), ["10.1.2.3:1", "[2001:db8::1]:1"]);
        assert_eq!(allowed(&listed, &LINK), ["169.254.169.254:80", "[::ffff:169.254.1.1]:1"]);
        assert!(allowed(&listed, &LOOPBACK).is_empty());
        let all = networks("0.0.0.0/0,::/0", ELSEWHERE, None);
        assert_eq!(allowed(&all, &HOSTS), HOSTS);
        assert!(allowed(&all, &NOWHERE).is_empty());
        let edge = networks("10.1.2.3,10.9.0.0/31", ELSEWHERE, None);
        let ports = ["10.1.2.3:1", "10.1.2.2:1", "10.9.0.1:1", "10.9.0.2:1"];
        assert_eq!(allowed(&edge, &ports), ["10.1.2.3:1", "10.9.0.1:1"]);
    }

    #[test]
    fn nonsense_is_told() {
        for listed in ["10.0.0.0/33", "ten", "10.0.0.0/8;::/0", "::/129", "10.0.0.0/"] {
            assert!(parse(listed).is_err(), "{listed}");
        }
    }

    #[test]
    fn this_host_by_whatever_name() {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        for servers in [format!("http://{host}:7700"), format!("{ELSEWHERE}, {host}:7700")] {
            assert_eq!(allowed(&networks("", &servers, None), &LOOPBACK), LOOPBACK, "{servers}");
        }
        for own in ["[::ffff:127.0.0.1]:9", "[::1]:9"] {
            assert_eq!(allowed(&networks("", ELSEWHERE, Some(own)), &LOOPBACK), LOOPBACK, "{own}");
        }
        // What is listed is listed, wherever the job is.
        let listed = networks("127.0.0.0/8", ELSEWHERE, None);
        assert_eq!(allowed(&listed, &LOOPBACK), ["127.0.0.1:1", "[::ffff:127.0.0.9]:1"]);
    }
}
