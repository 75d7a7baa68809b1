//! The data port that a worker of this host would have: whether it can be bound, and who can reach it.

use std::net::{IpAddr, SocketAddr};

use crate::doctor::check::Check;

/// What is known of the data port.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct DataPortFacts {
    /// As configured.
    pub(in crate::doctor) bind: String,
    pub(in crate::doctor) bound: BindOutcome,
    /// What peers would be told; `None`: all addresses are bound, and none is advertised.
    pub(in crate::doctor) told: Option<String>,
    /// Why nobody would find it there, by what the servers' addresses say.
    pub(in crate::doctor) unreachable: Option<String>,
    /// Why peers with the settings of this host would not connect to it.
    pub(in crate::doctor) refused: Option<String>,
    pub(in crate::doctor) dialled: Dialled,
}

/// Whether the address can be bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum BindOutcome {
    To(SocketAddr),
    /// Another process has the port.
    Taken,
    Refused(String),
}

/// What came of having a server connect to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum Dialled {
    /// The server was not asked.
    NotAsked(String),
    /// The server did.
    By {
        /// The server.
        server: String,
        /// This host's address, as the server sees it, and the port that was dialled.
        seen: SocketAddr,
        /// The address of this host that listened.
        listened: IpAddr,
        outcome: DialOutcome,
    },
}

/// How a dial went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum DialOutcome {
    /// The server's proof came here.
    Proved,
    /// Somebody took the server's connection, and it was not this host.
    Elsewhere,
    Refused,
    TimedOut,
}

/// The checks of the data port.
pub(in crate::doctor) fn judge(facts: &DataPortFacts) -> Vec<Check> {
    vec![bind(facts), address(facts), reached(&facts.dialled)]
}

fn bind(facts: &DataPortFacts) -> Check {
    const ID: &str = "data-port.bind";
    let bind = &facts.bind;
    match &facts.bound {
        BindOutcome::To(bound) => Check::ok(ID, format!("{bind} can be bound (now as {bound})")),
        BindOutcome::Taken => Check::warning(
            ID,
            format!("another process has {bind}, maybe a worker of this job"),
            "if it is none, or if several workers run here, give the port 0: each worker then has \
             a port of its own",
        ),
        BindOutcome::Refused(why) => Check::problem(
            ID,
            why,
            "set WEIGHTCAST_DATA_BIND to an address of this host, such as 10.0.0.2:0; beyond \
             loopback, a token is needed as well (WEIGHTCAST_TOKEN_FILE)",
        ),
    }
}

fn address(facts: &DataPortFacts) -> Check {
    const ID: &str = "data-port.address";
    match (&facts.told, &facts.unreachable, &facts.refused) {
        (None, ..) => Check::problem(
            ID,
            format!(
                "{} is bound, which is all addresses and none that peers can connect to",
                facts.bind
            ),
            "set WEIGHTCAST_DATA_ADVERTISE to this host's name and the port, or bind one address \
             of this host",
        ),
        (Some(_), Some(why), _) => Check::problem(
            ID,
            why,
            "set WEIGHTCAST_DATA_BIND to an address of this host that the others reach, such as \
             10.0.0.2:0",
        ),
        (Some(_), None, Some(why)) => Check::problem(
            ID,
            why,
            "have it bind or advertise an address of the job, or list its network in \
             WEIGHTCAST_DATA_NETWORKS",
        ),
        (Some(told), None, None) => Check::ok(ID, format!("peers are told {told}")),
    }
}

fn reached(dialled: &Dialled) -> Check {
    const ID: &str = "data-port.reached";
    let (server, seen, listened, outcome) = match dialled {
        Dialled::NotAsked(why) => return Check::not_applicable(ID, why),
        Dialled::By { server, seen, listened, outcome } => (server, seen, *listened, outcome),
    };
    let cure = "open the port in firewalls and security groups, or set WEIGHTCAST_DATA_BIND (and \
                WEIGHTCAST_DATA_ADVERTISE) to an address that the others reach";
    // What the server is told to dial is this host's address as the server sees it: that may be another one.
    let other = !listened.is_unspecified() && listened != seen.ip();
    match outcome {
        DialOutcome::Proved => {
            Check::ok(ID, format!("the server at {server} has connected to {seen}, which led here"))
        }
        _ if other => Check::not_applicable(
            ID,
            format!(
                "the server at {server} sees this host as {}, and connects to no other address; \
                 the data port would be at {listened}",
                seen.ip()
            ),
        ),
        DialOutcome::Elsewhere => Check::problem(
            ID,
            format!(
                "the server at {server} has connected to {seen}, and that led to somebody else"
            ),
            "this host is behind an address that others share: forward a port of that address, and \
             tell it with WEIGHTCAST_DATA_ADVERTISE",
        ),
        DialOutcome::Refused => {
            Check::problem(ID, format!("the server at {server} cannot connect to {seen}"), cure)
        }
        DialOutcome::TimedOut => {
            Check::problem(ID, format!("the server at {server} gets no answer from {seen}"), cure)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem, Warning};
    use crate::doctor::check::{CheckVerdict, assert_check};

    fn good() -> DataPortFacts {
        DataPortFacts {
            bind: "10.0.0.2:0".to_owned(),
            bound: BindOutcome::To("10.0.0.2:4000".parse().unwrap()),
            told: Some("10.0.0.2:4000".to_owned()),
            unreachable: None,
            refused: None,
            dialled: dialled("10.0.0.2:4000", "10.0.0.2", DialOutcome::Proved),
        }
    }

    fn dialled(seen: &str, listened: &str, outcome: DialOutcome) -> Dialled {
        let (seen, listened) = (seen.parse().unwrap(), listened.parse().unwrap());
        Dialled::By { server: "one".to_owned(), seen, listened, outcome }
    }

    /// One check, where all others are good.
    #[track_caller]
    fn assert_port(facts: DataPortFacts, id: &str, verdict: CheckVerdict, words: &[&str]) {
        for check in judge(&facts) {
            match check.id == id {
                true => assert_check(&check, id, verdict, words),
                false => assert_check(&check, check.id, Ok, &[]),
            }
        }
    }

    #[test]
    fn an_address_is_bound_and_told() {
        let text = |text: &str| text.to_owned();
        assert_port(good(), "data-port.bind", Ok, &["10.0.0.2:0", "10.0.0.2:4000"]);
        let taken = DataPortFacts { bound: BindOutcome::Taken, ..good() };
        assert_port(taken, "data-port.bind", Warning, &["10.0.0.2:0", "port 0"]);
        let refused = DataPortFacts { bound: BindOutcome::Refused(text("not here")), ..good() };
        assert_port(refused, "data-port.bind", Problem, &["not here", "10.0.0.2:0"]);
        let table: [(DataPortFacts, CheckVerdict, &[&str]); 4] = [
            (good(), Ok, &["told 10.0.0.2:4000"]),
            (
                DataPortFacts { told: None, ..good() },
                Problem,
                &["10.0.0.2:0 is bound", "WEIGHTCAST_DATA_ADVERTISE"],
            ),
            (
                DataPortFacts { unreachable: Some(text("loopback")), ..good() },
                Problem,
                &["loopback", "WEIGHTCAST_DATA_BIND"],
            ),
            (
                DataPortFacts { refused: Some(text("link-local")), ..good() },
                Problem,
                &["link-local", "WEIGHTCAST_DATA_NETWORKS"],
            ),
        ];
        for (facts, verdict, words) in table {
            assert_port(facts, "data-port.address", verdict, words);
        }
    }

    #[test]
    fn what_the_server_found_is_told() {
        use DialOutcome::{Elsewhere, Proved, Refused, TimedOut};
        let (own, other, any) = ("10.0.0.2", "192.168.0.2", "0.0.0.0");
        let seen = "10.0.0.2:4000";
        let table: [(Dialled, CheckVerdict, &[&str]); 10] = [
            (dialled(seen, own, Proved), Ok, &["connected to 10.0.0.2:4000"]),
            (dialled(seen, any, Proved), Ok, &["connected to 10.0.0.2:4000"]),
            // A port is forwarded: that is proof enough.
            (dialled(seen, other, Proved), Ok, &["connected to 10.0.0.2:4000"]),
            (
                dialled(seen, own, Elsewhere),
                Problem,
                &["somebody else", "WEIGHTCAST_DATA_ADVERTISE"],
            ),
            (
                dialled(seen, own, Refused),
                Problem,
                &["cannot connect to 10.0.0.2:4000", "firewalls"],
            ),
            (dialled(seen, any, Refused), Problem, &["cannot connect"]),
            (dialled(seen, own, TimedOut), Problem, &["no answer from 10.0.0.2:4000", "firewalls"]),
            (dialled(seen, other, Refused), NotApplicable, &["sees this host as 10.0.0.2", other]),
            (dialled(seen, other, Elsewhere), NotApplicable, &["no other address"]),
            (Dialled::NotAsked("a Unix socket".to_owned()), NotApplicable, &["a Unix socket"]),
        ];
        for (dialled, verdict, words) in table {
            let facts = DataPortFacts { dialled, ..good() };
            assert_port(facts, "data-port.reached", verdict, words);
        }
    }
}
