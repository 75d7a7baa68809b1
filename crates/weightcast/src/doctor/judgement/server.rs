//! The reference servers: which ones there are, whether they answer, and how they are.

use weightcast_protocol::Term;

use crate::doctor::check::Check;

/// What is known of the servers of the job.
pub(in crate::doctor) struct ServerFacts {
    pub(in crate::doctor) origin: ServerOrigin,
    /// Those of the list, in its order.
    pub(in crate::doctor) servers: Vec<AskedServer>,
}

/// Which servers would be used, and why these.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum ServerOrigin {
    /// Named as an argument.
    Argument(String),
    /// Named by `WEIGHTCAST_SERVER`.
    Environment(String),
    /// Started by the processes of a job.
    Job { job: String, address: String },
    /// None is named, and the job has none.
    Nobody {
        job: String,
        /// Jobs of this user that have one.
        others: Vec<String>,
    },
    /// That could not be found out.
    Unknown(String),
}

/// One server of the list.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) struct AskedServer {
    pub(in crate::doctor) address: String,
    pub(in crate::doctor) answer: ServerAnswer,
    /// What it says of its release, empty if nothing; `None` if it could not be asked.
    pub(in crate::doctor) version: Option<String>,
}

/// What came of asking a server.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) enum ServerAnswer {
    /// It answers.
    Yes {
        /// The median of a few questions.
        seconds: f64,
        /// `None`: it is passive.
        term: Option<Term>,
    },
    /// It answers that the token is not its own, or that there is none.
    TokenRefused,
    /// Nobody answers.
    No(String),
    /// Something else than a reference server answers.
    Other(String),
}

impl ServerOrigin {
    /// The list of servers, if there are any.
    pub(in crate::doctor) fn servers(&self) -> Option<&str> {
        match self {
            Self::Argument(servers) | Self::Environment(servers) => Some(servers),
            Self::Job { address, .. } => Some(address),
            Self::Nobody { .. } | Self::Unknown(_) => None,
        }
    }
}

impl AskedServer {
    /// The term that it acts in.
    fn term(&self) -> Option<Term> {
        match self.answer {
            ServerAnswer::Yes { term, .. } => term,
            _ => None,
        }
    }
}

/// The checks of the servers.
pub(in crate::doctor) fn judge(facts: &ServerFacts, build: &str) -> Vec<Check> {
    let mut checks = vec![which(&facts.origin)];
    let acting: Vec<&AskedServer> = facts.servers.iter().filter(|s| s.term().is_some()).collect();
    for server in &facts.servers {
        let others = facts
            .servers
            .iter()
            .any(|other| other != server && matches!(other.answer, ServerAnswer::Yes { .. }));
        checks.push(reach(server, others).of(&server.address));
        if matches!(server.answer, ServerAnswer::Yes { .. }) {
            checks.push(role(server, &acting).of(&server.address));
        }
        if let Some(version) = &server.version {
            checks.push(release(version, build).of(&server.address));
        }
    }
    checks
}

fn which(origin: &ServerOrigin) -> Check {
    const ID: &str = "server";
    match origin {
        ServerOrigin::Argument(servers) => Check::ok(ID, format!("{servers}, as given")),
        ServerOrigin::Environment(servers) => {
            Check::ok(ID, format!("{servers}, of WEIGHTCAST_SERVER"))
        }
        ServerOrigin::Job { job, address } => {
            Check::ok(ID, format!("{address}, which the processes of job {job} have started"))
        }
        ServerOrigin::Nobody { job, others } => {
            let others = match others.join(", ") {
                none if none.is_empty() => String::new(),
                others => format!("; these jobs of this user have one here: {others}"),
            };
            Check::not_applicable(
                ID,
                format!(
                    "none is named (WEIGHTCAST_SERVER) and job {job} has none: the first `open` of \
                     the job on this host starts one{others}"
                ),
            )
        }
        ServerOrigin::Unknown(why) => {
            Check::problem(ID, why, "name the server: WEIGHTCAST_SERVER, or --server")
        }
    }
}

fn reach(server: &AskedServer, others: bool) -> Check {
    const ID: &str = "server.reach";
    let unless = |found: &str, advice: &str| match others {
        true => Check::warning(ID, found, format!("{advice}; until then, it is no backup")),
        false => Check::problem(ID, found, advice),
    };
    match &server.answer {
        ServerAnswer::Yes { seconds, .. } => {
            Check::ok(ID, format!("answers within {:.2} ms, the median of a few", seconds * 1e3))
        }
        ServerAnswer::TokenRefused => Check::ok(ID, "answers, and asks for another token"),
        ServerAnswer::No(why) => unless(
            why,
            "look whether the server runs (`weightcast serve`), listens on an address that this \
             host reaches, and that no firewall is between",
        ),
        ServerAnswer::Other(why) => {
            unless(why, "check host and port: this does not answer as a reference server does")
        }
    }
}

fn role(server: &AskedServer, acting: &[&AskedServer]) -> Check {
    const ID: &str = "server.role";
    let highest = acting.iter().filter_map(|other| other.term()).max();
    match (server.term(), highest) {
        (Some(term), Some(highest)) if term < highest => Check::warning(
            ID,
            format!(
                "acts in term {}, and another server of the list acts in term {}",
                term.0, highest.0
            ),
            "nothing, if it is gone in a few seconds: the first client that knows of the later \
             term ends this one. Else look whether all clients have the same list",
        ),
        (Some(term), _) => Check::ok(ID, format!("acts in term {}", term.0)),
        (None, Some(_)) => Check::ok(ID, "passive: a backup"),
        (None, None) => Check::ok(ID, "passive: acts once a session opens"),
    }
}

fn release(version: &str, build: &str) -> Check {
    const ID: &str = "server.version";
    match version {
        "" => Check::warning(
            ID,
            format!("unknown: the server's release is older than this one, {build}"),
            "run the same release everywhere",
        ),
        same if same == build => Check::ok(ID, format!("{same}, as this program")),
        other => Check::warning(
            ID,
            format!("{other}; this program is {build}"),
            "run the same release everywhere",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem, Warning};
    use crate::doctor::check::{CheckVerdict, assert_check};

    fn server(address: &str, answer: ServerAnswer) -> AskedServer {
        AskedServer { address: address.to_owned(), answer, version: None }
    }

    fn yes(term: Option<u64>) -> ServerAnswer {
        ServerAnswer::Yes { seconds: 0.0004, term: term.map(Term) }
    }

    /// The checks of servers that are named one, two and so on, without the first check.
    fn judged<const N: usize>(answers: [ServerAnswer; N]) -> Vec<Check> {
        let names = ["one", "two", "three"];
        let servers = names.into_iter().zip(answers).map(|(name, answer)| server(name, answer));
        let origin = ServerOrigin::Argument("one,two".to_owned());
        let facts = ServerFacts { origin, servers: servers.collect() };
        judge(&facts, "1.2.3").split_off(1)
    }

    #[test]
    fn which_server_is_used_is_told_with_the_reason() {
        let (job, address) = ("j".to_owned(), "unix:/s".to_owned());
        let nobody = |others: &[&str]| ServerOrigin::Nobody {
            job: job.clone(),
            others: others.iter().map(|job| (*job).to_owned()).collect(),
        };
        let table: [(ServerOrigin, CheckVerdict, &[&str]); 6] = [
            (ServerOrigin::Argument("a:1".to_owned()), Ok, &["a:1, as given"]),
            (ServerOrigin::Environment("a:1".to_owned()), Ok, &["a:1, of WEIGHTCAST_SERVER"]),
            (ServerOrigin::Job { job: job.clone(), address }, Ok, &["unix:/s", "job j"]),
            (nobody(&[]), NotApplicable, &["job j", "starts one"]),
            (nobody(&["k", "l"]), NotApplicable, &["starts one; these jobs", "k, l"]),
            (ServerOrigin::Unknown("no place".to_owned()), Problem, &["no place", "--server"]),
        ];
        for (origin, verdict, words) in table {
            let facts = ServerFacts { origin, servers: Vec::new() };
            let checks = judge(&facts, "1.2.3");
            assert_eq!(checks.len(), 1);
            assert_check(&checks[0], "server", verdict, words);
        }
    }

    #[test]
    fn a_server_alone_has_to_answer_and_a_backup_should() {
        let table: [(ServerAnswer, CheckVerdict, CheckVerdict, &[&str]); 4] = [
            (yes(None), Ok, Ok, &["0.40 ms"]),
            (ServerAnswer::TokenRefused, Ok, Ok, &["another token"]),
            (
                ServerAnswer::No("refused".to_owned()),
                Problem,
                Warning,
                &["refused", "weightcast serve"],
            ),
            (ServerAnswer::Other("not found".to_owned()), Problem, Warning, &["not found", "port"]),
        ];
        for (answer, alone, beside, words) in table {
            let checks = judged([answer.clone()]);
            assert_check(&checks[0], "server.reach", alone, words);
            assert_eq!(checks[0].of.as_deref(), Some("one"));
            let checks = judged([yes(Some(1)), answer.clone()]);
            assert_check(&checks[2], "server.reach", beside, words);
            // One that asks for another token is none that could stand in.
            let checks = judged([ServerAnswer::TokenRefused, answer]);
            assert_check(&checks[1], "server.reach", alone, words);
        }
    }

    #[test]
    fn one_server_acts_or_none_does_yet() {
        let roles = |checks: Vec<Check>| -> Vec<Check> {
            checks.into_iter().filter(|check| check.id == "server.role").collect()
        };
        let found = roles(judged([yes(None), yes(None)]));
        found.iter().for_each(|check| assert_check(check, "server.role", Ok, &["once a session"]));
        let found = roles(judged([yes(Some(5)), yes(None), yes(Some(3))]));
        let table: [(CheckVerdict, &[&str]); 3] = [
            (Ok, &["acts in term 5"]),
            (Ok, &["a backup"]),
            (Warning, &["acts in term 3", "term 5"]),
        ];
        for (check, (verdict, words)) in found.iter().zip(table) {
            assert_check(check, "server.role", verdict, words);
        }
        assert_eq!(found.len(), 3);
        assert!(roles(judged([ServerAnswer::TokenRefused])).is_empty(), "it does not say");
    }

    #[test]
    fn releases_are_compared() {
        let checks = |version: Option<&str>| {
            let version = version.map(str::to_owned);
            let servers = vec![AskedServer { version, ..server("one", yes(Some(1))) }];
            let origin = ServerOrigin::Argument("one".to_owned());
            judge(&ServerFacts { origin, servers }, "1.2.3").split_off(3)
        };
        let table: [(&str, CheckVerdict, &[&str]); 3] = [
            ("1.2.3", Ok, &["1.2.3, as this program"]),
            ("1.2.2", Warning, &["1.2.2; this program is 1.2.3", "same release"]),
            ("", Warning, &["unknown", "same release"]),
        ];
        for (version, verdict, words) in table {
            assert_check(&checks(Some(version))[0], "server.version", verdict, words);
        }
        assert!(checks(None).is_empty());
    }
}
