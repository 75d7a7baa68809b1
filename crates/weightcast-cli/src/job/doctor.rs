//! `weightcast doctor`: what of this host and job is as it should be, and what to do about the rest.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use serde::Serialize;
use weightcast::{Check, CheckVerdict, ChoiceOf, Examination, Options, Role};

use crate::output::{self, wrapped};

/// The hidden command by which the doctor starts its second process.
pub(crate) const READER: &str = "doctor-reader";
/// Columns of the table: the check, its verdict, and what is said.
const CHECK: usize = 18;
const VERDICT: usize = 14;
const SAID: usize = 64;

/// Arguments of `doctor`.
#[derive(Args)]
#[command(after_help = "\
Moves bytes to a second process by each way, asks each server, and has one of them connect back to
the data port that a worker here would have. Starts no server, and changes nothing.
docs/concepts/doctor.md says what each check means.

exit status: 0 all is ok, or warns; 1 there is a problem; 2 wrong usage")]
pub(crate) struct Doctor {
    /// http://HOST:PORT or unix:/PATH, or several with commas between them; WEIGHTCAST_SERVER by default
    #[arg(long)]
    server: Option<String>,
    /// File with the token; WEIGHTCAST_TOKEN_FILE by default
    #[arg(long)]
    token_file: Option<PathBuf>,
    /// Without a server: the job whose processes have started one on this host; WEIGHTCAST_JOB, the
    /// Slurm job or this directory's by default
    #[arg(long)]
    job: Option<String>,
    /// Say what would be chosen if a replica read from this one (best run on the reader's host)
    #[arg(long, value_name = "REPLICA", requires = "to")]
    from: Option<String>,
    /// The replica that would read
    #[arg(long, value_name = "REPLICA", requires = "from")]
    to: Option<String>,
    /// The model of both, where several have such replicas
    #[arg(long, requires = "from")]
    model: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is to be examined; `program` starts this command line again.
fn asked(arguments: Doctor, program: &[String]) -> (Examination, Options) {
    let choice = arguments.from.zip(arguments.to);
    let choice = choice.map(|(source, reader)| ChoiceOf { source, reader, model: arguments.model });
    let program = program.iter().cloned().chain([READER.to_owned()]).collect();
    let options = Options {
        server: arguments.server,
        token_file: arguments.token_file,
        job: arguments.job,
        ..Options::new(Role::Rollout)
    };
    (Examination { program, choice }, options)
}

/// Returns the exit status.
pub(crate) fn run(arguments: Doctor, program: &[String]) -> i32 {
    let json = arguments.json;
    let (examination, options) = asked(arguments, program);
    let checks = match weightcast::doctor(&examination, &options) {
        Ok(checks) => checks,
        Err(error) => {
            eprintln!("weightcast: {error}");
            return 1;
        }
    };
    let shown = if json { checks_json(&checks) + "\n" } else { table(&checks) };
    match output::print(&shown) {
        Ok(()) => i32::from(worst(&checks) == CheckVerdict::Problem),
        Err(error) => {
            eprintln!("weightcast: {error:#}");
            1
        }
    }
}

/// The second process of the self-test.
pub(crate) fn reader() -> anyhow::Result<()> {
    Ok(weightcast::self_test_reader(std::io::stdin().lock(), std::io::stdout())?)
}

fn worst(checks: &[Check]) -> CheckVerdict {
    checks.iter().map(|check| check.verdict).max().unwrap_or(CheckVerdict::Ok)
}

/// What `--json` prints.
#[derive(Serialize)]
struct Examined<'a> {
    /// The release of this program.
    version: &'static str,
    /// The worst of all.
    verdict: CheckVerdict,
    checks: &'a [Check],
}

fn checks_json(checks: &[Check]) -> String {
    let all = Examined { version: weightcast::VERSION, verdict: worst(checks), checks };
    serde_json::to_string_pretty(&all).expect("structs with string names always serialise")
}

fn table(checks: &[Check]) -> String {
    let mut text = String::new();
    for check in checks {
        let of = check.of.as_ref().map_or(String::new(), |of| format!("{of}: "));
        let mut lines = wrapped(&format!("{of}{}", check.found), SAID);
        if let Some(advice) = &check.advice {
            lines.extend(wrapped(&format!("do: {advice}"), SAID));
        }
        let (mut id, mut verdict) = (check.id, check.verdict.name());
        for line in lines {
            let _ = writeln!(text, "{id:<CHECK$}  {verdict:<VERDICT$}  {line}");
            (id, verdict) = ("", "");
        }
    }
    let count = |of| checks.iter().filter(|check| check.verdict == of).count();
    let (warnings, problems) = (count(CheckVerdict::Warning), count(CheckVerdict::Problem));
    let _ = writeln!(text, "\n{} checks: {warnings} warn, {problems} are a problem", checks.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(id: &'static str, verdict: CheckVerdict, of: Option<&str>, found: &str) -> Check {
        let advice = (verdict >= CheckVerdict::Warning).then(|| "mend it".to_owned());
        Check { id, of: of.map(str::to_owned), verdict, found: found.to_owned(), advice }
    }

    fn checks() -> Vec<Check> {
        vec![
            check("way.tcp", CheckVerdict::Ok, None, "2.0 GB/s"),
            check("server.reach", CheckVerdict::Problem, Some("http://one:1"), &"far ".repeat(40)),
            check("way.shared-memory", CheckVerdict::NotApplicable, None, "not here"),
        ]
    }

    #[test]
    fn a_table_fits_a_hundred_columns() {
        let text = table(&checks());
        assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "way.tcp             ok              2.0 GB/s");
        assert!(lines[1].starts_with("server.reach        problem         http://one:1: far far"));
        assert!(lines[2].starts_with(&format!("{}far", " ".repeat(36))), "{text}");
        assert!(
            text.contains("do: mend it\nway.shared-memory   not applicable  not here\n"),
            "{text}"
        );
        assert!(text.ends_with("\n3 checks: 0 warn, 1 are a problem\n"), "{text}");
    }

    #[test]
    fn json_has_every_field_under_its_own_name() {
        let all: serde_json::Value = serde_json::from_str(&checks_json(&checks())).expect("JSON");
        assert_eq!(all["verdict"], "problem");
        assert_eq!(all["version"], weightcast::VERSION);
        let first = serde_json::json!({
            "id": "way.tcp", "of": null, "verdict": "ok", "found": "2.0 GB/s", "advice": null,
        });
        assert_eq!(all["checks"][0], first);
        assert_eq!(all["checks"][1]["of"], "http://one:1");
        assert_eq!(all["checks"][1]["advice"], "mend it");
        assert_eq!(all["checks"][2]["verdict"], "not applicable");
    }

    #[test]
    fn the_worst_decides() {
        use CheckVerdict::{NotApplicable, Ok, Problem, Warning};
        for (verdicts, wanted) in [
            (&[][..], Ok),
            (&[NotApplicable], NotApplicable),
            (&[Ok, NotApplicable], Ok),
            (&[Warning, Ok], Warning),
            (&[Problem, Warning, Ok], Problem),
        ] {
            let checks: Vec<_> = verdicts.iter().map(|of| check("x", *of, None, "")).collect();
            assert_eq!(worst(&checks), wanted, "{verdicts:?}");
        }
    }

    #[test]
    fn options_reach_the_examination() {
        #[derive(clap::Parser)]
        struct DoctorLine {
            #[command(flatten)]
            doctor: Doctor,
        }
        let given = |words: &str| {
            let words = ["doctor"].into_iter().chain(words.split(' ').filter(|w| !w.is_empty()));
            let line = <DoctorLine as clap::Parser>::try_parse_from(words);
            line.map(|line| asked(line.doctor, &["this".to_owned()]))
        };
        let (examination, options) = given("").expect("nothing is needed");
        assert_eq!(examination.program, ["this", READER]);
        assert!(examination.choice.is_none() && options.server.is_none());
        let words = "--server s --token-file /t --job j --from a --to b --model m";
        let (examination, options) = given(words).expect("all options");
        assert_eq!((options.server.as_deref(), options.job.as_deref()), (Some("s"), Some("j")));
        assert_eq!(options.token_file, Some(PathBuf::from("/t")));
        let choice = examination.choice.expect("two replicas");
        assert_eq!([choice.source, choice.reader], ["a", "b"]);
        assert_eq!(choice.model.as_deref(), Some("m"));
        for half in ["--from a", "--to b", "--model m"] {
            assert!(given(half).is_err(), "{half}");
        }
    }
}
