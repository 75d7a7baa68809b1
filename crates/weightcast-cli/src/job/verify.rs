//! `weightcast verify`: whether live replicas hold the same, and where they do not.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use clap::Args;
use weightcast::{
    Comparison, Difference, DifferentRange, HeldBy, MAX_TENSORS, Options, Other, Role, Selector,
    Verdict,
};

use crate::output::{self, size};

/// How often progress is shown.
const EVERY: Duration = Duration::from_secs(2);
/// Holders that are named of those that hold the same.
const NAMED: usize = 4;

/// Arguments of `verify`.
#[derive(Args)]
#[command(after_help = "\
Each shard digests its memory as it is now; only digests are sent. A tensor that is not the same on
both sides, or in all copies on one side, is cut in boxes until the rows are known.

exit status: 0 equal, 1 different, 2 nothing can be said (no such replica, it moved on meanwhile, a
shard does not answer)

The digests find accidents, not adversaries: who knows them can make other bytes that have the same.")]
pub(crate) struct Verify {
    /// A replica
    replica: String,
    /// The one to compare it with; any other that holds the version, a trainer first, if not given
    #[arg(conflicts_with = "sealed")]
    other: Option<String>,
    /// Compare it only with what it was sealed as: finds slices that have changed since, not rows
    #[arg(long)]
    sealed: bool,
    /// The model
    #[arg(long)]
    model: String,
    /// The version that they have to hold: a number or `latest`; whatever the first one holds, if not
    /// given
    #[arg(long, value_parser = selector)]
    version: Option<Selector>,
    /// http://HOST:PORT or unix:/PATH
    #[arg(long, env = "WEIGHTCAST_SERVER")]
    server: Option<String>,
    /// File with the token
    #[arg(long, env = "WEIGHTCAST_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// Without a server: the job whose processes have started one on this host; WEIGHTCAST_JOB, the
    /// Slurm job or this directory's by default
    #[arg(long)]
    job: Option<String>,
    /// Seconds that it may take
    #[arg(long, default_value_t = 600.0, value_parser = super::serve::positive)]
    timeout: f64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

fn selector(text: &str) -> Result<Selector, String> {
    match (text, text.parse()) {
        ("latest", _) => Ok(Selector::Latest),
        (_, Ok(number)) => Ok(Selector::Exact(number)),
        _ => Err("a number or `latest` is needed".to_owned()),
    }
}

/// What is to be compared, and who is asked.
fn asked(arguments: Verify) -> (Comparison, Options) {
    let options = Options {
        server: arguments.server,
        token_file: arguments.token_file,
        job: arguments.job,
        ..Options::new(Role::Rollout)
    };
    let what = Comparison {
        model: arguments.model,
        replica: arguments.replica,
        other: match arguments.other {
            Some(other) => Other::Replica(other),
            None if arguments.sealed => Other::Sealed,
            None => Other::Any,
        },
        version: arguments.version,
        deadline: Duration::from_secs_f64(arguments.timeout),
    };
    (what, options)
}

/// Returns the exit status.
pub(crate) fn run(arguments: Verify) -> i32 {
    let json = arguments.json;
    let (what, options) = asked(arguments);
    let shown = Mutex::new(Instant::now());
    let progress = |digested: u64| {
        let mut shown = shown.lock().expect("no panic while held");
        if shown.elapsed() >= EVERY {
            *shown = Instant::now();
            eprintln!("weightcast: {} digested", size(digested));
        }
        true
    };
    match weightcast::verify(&what, &options, &progress) {
        Ok(verdict) => {
            let shown = match json {
                true => verdict_json(&verdict) + "\n",
                false => text(&verdict),
            };
            match output::print(&shown) {
                Ok(()) => status(&verdict),
                Err(error) => {
                    eprintln!("weightcast: {error:#}");
                    2
                }
            }
        }
        Err(error) => {
            eprintln!("weightcast: {error}");
            2
        }
    }
}

/// The exit status: goes by the verdict, which may be against replicas that agree with each other.
fn status(verdict: &Verdict) -> i32 {
    i32::from(!verdict.equal)
}

/// The verdict as JSON, field by field as [`Verdict`] has it.
pub fn verdict_json(verdict: &Verdict) -> String {
    serde_json::to_string_pretty(verdict).expect("maps with string names always serialise")
}

fn text(verdict: &Verdict) -> String {
    let Verdict { model, epoch, version, .. } = verdict;
    let mut text = format!("model {model}  version {version} of run {epoch}\n");
    for of in &verdict.replicas {
        let copies = if of.copies_agree { "" } else { ", its copies differ" };
        let published = match of.as_published {
            Some(true) => "as published",
            Some(false) => "NOT as published",
            None => "not sealed yet",
        };
        let (name, shards, bytes) = (&of.name, of.shards, size(of.bytes));
        let _ = writeln!(text, "  {name:<16} {shards:>4} shards {bytes:>10}  {published}{copies}");
    }
    let tensors = verdict.tensors;
    match (verdict.equal, verdict.different.len()) {
        (true, _) => {
            let _ = writeln!(text, "equal: {tensors} tensors");
        }
        (false, 0) => text.push_str(
            "DIFFERENT from what was published; no shard's memory has changed since it was sealed\n",
        ),
        (false, count) => {
            let _ = writeln!(text, "DIFFERENT: {count} of {tensors} tensors");
        }
    }
    verdict.differences.iter().for_each(|difference| tensor(&mut text, difference));
    let more = verdict.different.len().saturating_sub(MAX_TENSORS);
    if more > 0 {
        let _ = writeln!(text, "and {more} more tensors; --json names them");
    }
    let (digested, moved) = (size(verdict.digested), size(verdict.moved));
    let _ = writeln!(text, "{digested} digested, {moved} moved, {:.2} s", verdict.seconds);
    text
}

fn tensor(text: &mut String, of: &Difference) {
    let _ = writeln!(text, "{} {} {:?}", of.tensor, of.dtype, of.shape);
    for range in &of.ranges {
        let note = match (range.moving, range.exact) {
            (true, _) => "  written to while it was compared",
            (false, false) if range.readings.len() > 1 => "  at least some of its rows",
            _ => "",
        };
        let _ = writeln!(text, "  {}{note}", slice(range));
        for same in &range.readings {
            let _ = writeln!(text, "    {}", holders(same));
        }
    }
    if of.more_ranges > 0 {
        let _ = writeln!(text, "  and {} more places", of.more_ranges);
    }
}

/// `[17:18, 0:4096]`; a scalar has no range.
fn slice(range: &DifferentRange) -> String {
    let ends: Vec<_> = range.slice.iter().map(|(start, end)| format!("{start}:{end}")).collect();
    if ends.is_empty() { "the scalar".to_owned() } else { format!("[{}]", ends.join(", ")) }
}

/// Those who hold the same, one after the other.
fn holders(same: &[HeldBy]) -> String {
    let named = |of: &HeldBy| {
        let published = match of.as_published {
            Some(true) => ", as published",
            Some(false) => ", CHANGED since it was published",
            None => "",
        };
        format!("{} shard {} ({}{published})", of.replica, of.shard, of.address)
    };
    let names: Vec<String> = same.iter().take(NAMED).map(named).collect();
    let more = same.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" = {more} more") } else { String::new() };
    format!("{}{more}", names.join(" = "))
}

#[cfg(test)]
mod tests {
    use weightcast::Verified;

    use super::*;

    fn held(replica: &str, as_published: Option<bool>) -> HeldBy {
        let replica = replica.to_owned();
        HeldBy { replica, shard: 1, address: "a:1".to_owned(), as_published }
    }

    fn verified(name: &str, copies_agree: bool, as_published: Option<bool>) -> Verified {
        Verified { name: name.to_owned(), shards: 2, bytes: 1_230_000, copies_agree, as_published }
    }

    fn verdict(equal: bool, replicas: Vec<Verified>, different: &[&str]) -> Verdict {
        Verdict {
            equal,
            model: "policy".to_owned(),
            epoch: 3,
            version: 7,
            replicas,
            tensors: 40,
            different: different.iter().map(|name| (*name).to_owned()).collect(),
            differences: Vec::new(),
            digested: 2_460_000,
            moved: 999,
            seconds: 0.25,
        }
    }

    fn lines(verdict: &Verdict) -> Vec<String> {
        let squeezed = |line: &str| line.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        text(verdict).lines().map(squeezed).collect()
    }

    #[test]
    fn options_reach_the_comparison() {
        #[derive(clap::Parser)]
        struct VerifyLine {
            #[command(flatten)]
            verify: Verify,
        }
        let given = |words: &str| {
            let words = ["verify", "a", "--model", "m"].into_iter().chain(words.split(' '));
            let line =
                <VerifyLine as clap::Parser>::try_parse_from(words.filter(|word| !word.is_empty()));
            asked(line.expect("options of verify").verify)
        };
        for (words, other, version, seconds) in [
            ("", Other::Any, None, 600.0),
            ("b", Other::Replica("b".to_owned()), None, 600.0),
            ("--sealed", Other::Sealed, None, 600.0),
            ("--version 3", Other::Any, Some(Selector::Exact(3)), 600.0),
            ("--version latest", Other::Any, Some(Selector::Latest), 600.0),
            ("--timeout 2.5", Other::Any, None, 2.5),
        ] {
            let (what, options) = given(words);
            assert_eq!((what.model.as_str(), what.replica.as_str()), ("m", "a"));
            let deadline = Duration::from_secs_f64(seconds);
            let wanted = (other, version, deadline);
            assert_eq!((what.other, what.version, what.deadline), wanted, "{words}");
            assert_eq!(options.job, None);
        }
        let (_, options) = given("--server s --token-file /t --job j");
        assert_eq!((options.server.as_deref(), options.job.as_deref()), (Some("s"), Some("j")));
        assert_eq!(options.token_file, Some(PathBuf::from("/t")));
    }

    #[test]
    fn equal_replicas_that_are_not_what_was_published_are_no_success() {
        let both = |as_published| vec![verified("a", true, as_published)];
        assert_eq!(status(&verdict(true, both(Some(true)), &[])), 0);
        assert_eq!(status(&verdict(false, both(Some(false)), &[])), 1);
        assert_eq!(status(&verdict(false, both(None), &["w"])), 1);
    }

    #[test]
    fn a_verdict_is_told_with_who_holds_what() {
        let both = vec![verified("a", true, Some(true)), verified("b", true, None)];
        assert_eq!(
            lines(&verdict(true, both, &[])),
            [
                "model policy version 7 of run 3",
                "a 2 shards 1.23 MB as published",
                "b 2 shards 1.23 MB not sealed yet",
                "equal: 40 tensors",
                "2.46 MB digested, 999 B moved, 0.25 s",
            ]
        );
        let alone = || vec![verified("a", false, Some(false))];
        let said = lines(&verdict(false, alone(), &[]));
        assert_eq!(said[1], "a 2 shards 1.23 MB NOT as published, its copies differ");
        assert!(said[2].starts_with("DIFFERENT from what was published; no shard's"), "{said:?}");
        let names: Vec<String> = (0..MAX_TENSORS + 2).map(|n| format!("t{n}")).collect();
        for (count, more) in [(MAX_TENSORS, None), (MAX_TENSORS + 2, Some("and 2 more tensors;"))] {
            let names: Vec<&str> = names[..count].iter().map(String::as_str).collect();
            let said = lines(&verdict(false, alone(), &names));
            assert_eq!(said[2], format!("DIFFERENT: {count} of 40 tensors"));
            let told = said.iter().find(|line| line.starts_with("and "));
            assert!(
                told.is_some() == more.is_some()
                    && told.is_none_or(|t| t.starts_with(more.unwrap()))
            );
        }
    }

    #[test]
    fn places_are_told_with_what_is_known_of_them() {
        let range = |exact, moving, readings: Vec<Vec<HeldBy>>| DifferentRange {
            slice: vec![(17, 18), (0, 4)],
            exact,
            moving,
            readings,
        };
        let two = || vec![vec![held("a", Some(true))], vec![held("b", None), held("c", None)]];
        let mut of = verdict(false, Vec::new(), &["w"]);
        of.differences = vec![Difference {
            tensor: "w".to_owned(),
            dtype: "BF16",
            shape: vec![40, 4],
            ranges: vec![
                range(true, false, two()),
                range(false, false, two()),
                range(false, true, two()),
                // What a shard alone has noted: a slice of it, whole.
                range(false, false, vec![vec![held("a", Some(false))]]),
                DifferentRange { slice: Vec::new(), ..range(true, false, Vec::new()) },
            ],
            more_ranges: 3,
        }];
        let two = ["a shard 1 (a:1, as published)", "b shard 1 (a:1) = c shard 1 (a:1)"];
        let expected = [
            &["w BF16 [40, 4]", "[17:18, 0:4]"][..],
            &two,
            &["[17:18, 0:4] at least some of its rows"],
            &two,
            &["[17:18, 0:4] written to while it was compared"],
            &two,
            &["[17:18, 0:4]", "a shard 1 (a:1, CHANGED since it was published)", "the scalar"],
            &["and 3 more places"],
        ];
        let said = lines(&of);
        assert_eq!(said[2..said.len() - 1], expected.concat());
        for (more, line) in [(0, None), (1, Some("and 1 more places"))] {
            of.differences[0].more_ranges = more;
            let told = lines(&of);
            assert_eq!(told.iter().map(String::as_str).find(|l| l.contains("more places")), line);
        }
    }

    #[test]
    fn versions_are_numbers_or_the_latest() {
        assert_eq!(selector("latest"), Ok(Selector::Latest));
        assert_eq!(selector("0"), Ok(Selector::Exact(0)));
        assert_eq!(selector("12"), Ok(Selector::Exact(12)));
        assert!(selector("-1").is_err() && selector("newest").is_err());
    }

    #[test]
    fn holders_are_named_up_to_four() {
        let same = |count: u32| -> String {
            holders(
                &(0..count).map(|shard| HeldBy { shard, ..held("r", None) }).collect::<Vec<_>>(),
            )
        };
        for (count, named, more) in [(1, 1, ""), (3, 3, ""), (4, 4, ""), (5, 4, " = 1 more")] {
            let names: Vec<String> =
                (0..named).map(|shard| format!("r shard {shard} (a:1)")).collect();
            assert_eq!(same(count), format!("{}{more}", names.join(" = ")));
        }
    }

    #[test]
    fn sizes_and_places_are_named() {
        assert_eq!((size(999).as_str(), size(1_230_000).as_str()), ("999 B", "1.23 MB"));
        let held = |shard, as_published| HeldBy {
            replica: "r".to_owned(),
            shard,
            address: "a:1".to_owned(),
            as_published,
        };
        let same: Vec<_> = (0..6).map(|shard| held(shard, None)).collect();
        assert!(holders(&same).ends_with("r shard 3 (a:1) = 2 more"), "{}", holders(&same));
        let changed = holders(&[held(1, Some(false))]);
        assert_eq!(changed, "r shard 1 (a:1, CHANGED since it was published)");
    }
}
