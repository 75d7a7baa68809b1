//! Variables of the environment: what those that are set mean, and which are probably misspelt.

use weightcast_plan::nearest;

use crate::doctor::check::Check;
use crate::environment::VARIABLES;

const ID: &str = "environment";
/// Characters of the shortest token.
const TOKEN_CHARS: usize = 32;

/// The checks of all variables whose names are weightcast's, each with its value.
pub(in crate::doctor) fn judge(set: &[(String, String)]) -> Vec<Check> {
    if set.is_empty() {
        return vec![Check::ok(ID, "no variable of weightcast is set")];
    }
    set.iter().map(|(name, value)| variable(name, value).of(name)).collect()
}

fn variable(name: &str, value: &str) -> Check {
    let Some((_, meaning)) = VARIABLES.iter().find(|(known, _)| *known == name) else {
        let known = VARIABLES.iter().map(|(known, _)| *known);
        let advice = match nearest(name, known).first() {
            Some(meant) => format!("set {meant} instead, if that is meant; else unset {name}"),
            None => {
                format!("unset {name}; docs/concepts/doctor.md has the variables that there are")
            }
        };
        // Its value may be anything, a token too.
        return Check::warning(ID, "no such variable: nothing reads it", advice);
    };
    if value.is_empty() {
        return Check::ok(ID, format!("empty, which is as if it were not set: {meaning}"));
    }
    let shown = if may_be_secret(value) { "(not shown)" } else { value };
    Check::ok(ID, format!("{shown}: {meaning}"))
}

/// Whether a value looks as a token does: somebody may have given the token where its file is asked for.
pub(in crate::doctor) fn may_be_secret(value: &str) -> bool {
    value.len() >= TOKEN_CHARS && !value.contains(['/', ':', ',', ' ', '.'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{Ok, Warning};
    use crate::doctor::check::assert_check;

    fn judged(name: &str, value: &str) -> Check {
        let checks = judge(&[(name.to_owned(), value.to_owned())]);
        assert_eq!(checks.len(), 1);
        assert_eq!(checks[0].of.as_deref(), Some(name));
        checks[0].clone()
    }

    #[test]
    fn a_variable_is_told_with_its_value_and_its_meaning() {
        for (name, meaning) in VARIABLES {
            assert_check(&judged(name, "a/b"), ID, Ok, &["a/b", meaning]);
        }
        assert_check(&judged("WEIGHTCAST_JOB", ""), ID, Ok, &["as if it were not set"]);
        assert_check(&judge(&[])[0], ID, Ok, &["no variable"]);
    }

    #[test]
    fn a_name_that_nobody_reads_is_told_with_the_nearest_one() {
        for (name, meant) in [
            ("WEIGHTCAST_TOKENFILE", "set WEIGHTCAST_TOKEN_FILE instead"),
            ("WEIGHTCAST_SERVERS", "set WEIGHTCAST_SERVER instead"),
            ("WEIGHTCAST_DATA_BND", "set WEIGHTCAST_DATA_BIND instead"),
            ("WEIGHTCAST_DATA_NETWORK", "set WEIGHTCAST_DATA_NETWORKS instead"),
        ] {
            let check = judged(name, "0123456789");
            assert_check(&check, ID, Warning, &["no such variable", meant]);
            assert!(!format!("{check:?}").contains("0123456789"), "its value is not shown");
        }
    }

    #[test]
    fn what_may_be_a_token_is_not_shown() {
        let token = "0123456789abcdef0123456789abcdef";
        for (value, secret) in [
            (token, true),
            (&token[1..], false),
            ("/run/secrets/0123456789abcdef0123456789abcdef", false),
            ("http://trainer-0.cluster:7700,http://trainer-1.cluster:7700", false),
        ] {
            assert_eq!(may_be_secret(value), secret, "{value}");
            let shown = format!("{:?}", judged("WEIGHTCAST_TOKEN_FILE", value)).contains(value);
            assert_eq!(shown, !secret, "{value}");
        }
    }
}
