//! What a search came to, as text or as JSON.

use serde_json::json;
use weightcast_explore::SearchResult;

/// What was explored, what must be found there, and which safeguards were off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrintedCase<'a> {
    /// The world in words.
    pub(crate) world: &'a str,
    /// The invariant that must break, if one must.
    pub(crate) expected: Option<&'a str>,
    /// The safeguards that were off.
    pub(crate) off: &'a str,
}

/// Prints a search as one line of JSON.
pub(crate) fn print_json(case: PrintedCase<'_>, found: &SearchResult, right: bool) {
    let story =
        |(invariant, story): &(&str, String)| json!({"invariant": invariant, "story": story});
    let line = json!({
        "world": case.world,
        "off": case.off,
        "expected": case.expected,
        "right": right,
        "unique_states": found.unique,
        "steps": found.taken,
        "depth": found.depth,
        "seconds": found.time.as_secs_f64(),
        "exhaustive": found.exhaustive,
        "broken": found.broken.iter().map(story).collect::<Vec<_>>(),
        "never_seen": found.missed,
    });
    println!("{line}");
}

/// Prints a search with all that it has found.
pub(crate) fn print_found(case: PrintedCase<'_>, found: &SearchResult) {
    println!("{}", summary(case.world, found));
    for missed in &found.missed {
        println!("never seen: {missed}");
    }
    for (invariant, story) in &found.broken {
        println!("{invariant} broken:\n{story}");
    }
}

/// Prints in one line whether what must be found was found.
pub(crate) fn print_expected(case: PrintedCase<'_>, expected: &str, found: &SearchResult) {
    let story = found.broken.iter().find(|(invariant, _)| *invariant == expected);
    let how = match story {
        Some((_, story)) => {
            let steps = story.lines().count().saturating_sub(1);
            format!("{expected} broken in {steps} steps")
        }
        None => format!("NOT FOUND: {expected}"),
    };
    println!("{}: {how} ({})", case.off, summary(case.world, found));
}

fn summary(world: &str, found: &SearchResult) -> String {
    format!(
        "{world}: {} unique states, {} steps, depth {}, {:.1} s, {}",
        found.unique,
        found.taken,
        found.depth,
        found.time.as_secs_f64(),
        if found.exhaustive { "exhaustive" } else { "not exhaustive" }
    )
}
