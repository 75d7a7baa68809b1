//! The token: where it lies, who can read it, and whether the servers know it.

use super::server::{AskedServer, ServerAnswer};
use crate::doctor::check::Check;

/// What is known of the token.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct TokenFacts {
    pub(in crate::doctor) origin: TokenOrigin,
    pub(in crate::doctor) state: TokenState,
}

/// Why it is this token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum TokenOrigin {
    /// Its file is named, as an argument or by `WEIGHTCAST_TOKEN_FILE`.
    Named,
    /// That of this user, for servers of this host.
    User,
    /// That of the job's server.
    Job,
    /// None is named, and a server is on another host.
    Nowhere,
}

/// How the token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum TokenState {
    /// There is none.
    Missing,
    /// It can be shown. Its file, where that is known.
    Usable(String),
    /// Others can do with its file what they must not; and the command that mends it.
    Open { file: String, found: String, cure: String },
    /// It cannot be read, or is none.
    Unusable(String),
    /// Its file is named by what is a token itself.
    Itself,
}

impl TokenFacts {
    /// Whether there is a token that a server could be shown.
    fn is_usable(&self) -> bool {
        matches!(self.state, TokenState::Usable(_))
    }
}

const ID: &str = "token";

/// The checks of the token; `servers` are those that were asked with it.
pub(in crate::doctor) fn judge(facts: &TokenFacts, servers: &[AskedServer]) -> Vec<Check> {
    let mut checks = vec![file(facts, servers)];
    for server in servers {
        checks.extend(accepted(facts, &server.answer).map(|check| check.of(&server.address)));
    }
    checks
}

fn file(facts: &TokenFacts, servers: &[AskedServer]) -> Check {
    let origin = match facts.origin {
        TokenOrigin::Named => "as named",
        TokenOrigin::User => "of this user, for servers of this host",
        TokenOrigin::Job => "of the job's server",
        TokenOrigin::Nowhere => "for servers of other hosts",
    };
    match &facts.state {
        TokenState::Usable(file) => {
            Check::ok(ID, format!("{file} ({origin}): can be read, and by nobody who must not"))
        }
        TokenState::Open { file, found, cure } => {
            Check::problem(ID, format!("{file} ({origin}): {found}"), format!("run: {cure}"))
        }
        TokenState::Unusable(why) => Check::problem(
            ID,
            why,
            "give the file that the server was started with; a new one: (umask 077; openssl rand \
             -hex 32 > token)",
        ),
        TokenState::Itself => Check::problem(
            ID,
            "WEIGHTCAST_TOKEN_FILE, or --token-file, names no file, and looks like the token \
             itself",
            "write the token to a file that only this user can read, and name the file; if others \
             have seen the token (`ps`, a log), make another",
        ),
        TokenState::Missing
            if servers.iter().any(|s| matches!(s.answer, ServerAnswer::Yes { .. })) =>
        {
            Check::warning(
                ID,
                "none, and the server asks for none: whoever reaches it can read and replace \
                 weights",
                "start the server with --token-file, and give the file to all processes \
                 (WEIGHTCAST_TOKEN_FILE)",
            )
        }
        TokenState::Missing => Check::problem(
            ID,
            format!("none is named {origin}"),
            "set WEIGHTCAST_TOKEN_FILE to the token file that the server has",
        ),
    }
}

/// What a server says to the token; nothing where the server did not answer.
fn accepted(facts: &TokenFacts, answer: &ServerAnswer) -> Option<Check> {
    const ID: &str = "token.accepted";
    match answer {
        ServerAnswer::Yes { .. } if facts.is_usable() => Some(Check::ok(ID, "yes")),
        ServerAnswer::TokenRefused if facts.is_usable() => Some(Check::problem(
            ID,
            "no: the server has another token",
            "name the file with the server's token in WEIGHTCAST_TOKEN_FILE; `weightcast serve` \
             prints which it is",
        )),
        ServerAnswer::TokenRefused => Some(Check::not_applicable(
            ID,
            "there is no token to show, and the server asks for one",
        )),
        ServerAnswer::Yes { .. } | ServerAnswer::No(_) | ServerAnswer::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem, Warning};
    use crate::doctor::check::{CheckVerdict, assert_check};

    fn asked(answer: ServerAnswer) -> AskedServer {
        AskedServer { address: "one".to_owned(), answer, version: None }
    }

    fn yes() -> ServerAnswer {
        ServerAnswer::Yes { seconds: 0.1, term: None }
    }

    fn open() -> TokenState {
        let [file, found, cure] =
            ["/t", "can be read by others (mode 0644)", "chmod go-rwx /t"].map(str::to_owned);
        TokenState::Open { file, found, cure }
    }

    fn judged(state: TokenState, servers: &[AskedServer]) -> Vec<Check> {
        judge(&TokenFacts { origin: TokenOrigin::Named, state }, servers)
    }

    #[test]
    fn a_token_has_its_verdict() {
        let table: [(TokenState, CheckVerdict, &[&str]); 5] = [
            (TokenState::Usable("/t".to_owned()), Ok, &["/t (as named)"]),
            (open(), Problem, &["/t (as named): can be read by others", "run: chmod go-rwx /t"]),
            (
                TokenState::Unusable("no such file".to_owned()),
                Problem,
                &["no such file", "openssl"],
            ),
            (TokenState::Itself, Problem, &["looks like the token itself", "make another"]),
            (TokenState::Missing, Problem, &["none is named", "WEIGHTCAST_TOKEN_FILE"]),
        ];
        for (state, verdict, words) in table {
            assert_check(&judged(state, &[])[0], "token", verdict, words);
        }
        for (origin, word) in [
            (TokenOrigin::User, "of this user"),
            (TokenOrigin::Job, "of the job's server"),
            (TokenOrigin::Nowhere, "of other hosts"),
        ] {
            let state = TokenState::Usable("/t".to_owned());
            assert_check(&judge(&TokenFacts { origin, state }, &[])[0], "token", Ok, &[word]);
        }
    }

    #[test]
    fn a_server_that_asks_for_none_is_a_warning() {
        let checks = judged(TokenState::Missing, &[asked(yes())]);
        assert_check(&checks[0], "token", Warning, &["asks for none", "--token-file"]);
        assert_eq!(checks.len(), 1);
        let checks = judged(TokenState::Missing, &[asked(ServerAnswer::TokenRefused)]);
        assert_check(&checks[0], "token", Problem, &[]);
        assert_check(&checks[1], "token.accepted", NotApplicable, &["there is no token to show"]);
    }

    #[test]
    fn each_server_that_answers_has_its_say_on_the_token() {
        let usable = || TokenState::Usable("/t".to_owned());
        let table: [(TokenState, ServerAnswer, Option<CheckVerdict>); 6] = [
            (usable(), yes(), Some(Ok)),
            (usable(), ServerAnswer::TokenRefused, Some(Problem)),
            (usable(), ServerAnswer::No(String::new()), None),
            (usable(), ServerAnswer::Other(String::new()), None),
            (open(), ServerAnswer::TokenRefused, Some(NotApplicable)),
            (open(), yes(), None),
        ];
        for (state, answer, verdict) in table {
            let checks = judged(state, &[asked(answer.clone())]);
            assert_eq!(checks.get(1).map(|check| check.verdict), verdict, "{answer:?}");
            let named = checks.get(1).map(|check| (check.id, check.of.as_deref()));
            assert!(named.is_none_or(|named| named == ("token.accepted", Some("one"))));
        }
    }
}
