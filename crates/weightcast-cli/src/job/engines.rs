//! `weightcast engines`: to which engines of a fleet a router may send requests.

use std::fmt::Write;

use clap::Args;
use serde::Serialize;
use weightcast::engine_update::RoutingLease;

use super::asked::JobServer;
use crate::output;

/// Arguments of `engines`.
#[derive(Args)]
#[command(after_help = "\
An engine is admitted while all of its workers serve the fleet's version; so a router sends requests to
admitted engines alone. `behind` serves another version, `standing` takes one in, sleeps or is empty,
`joining` has not told all yet. An engine that has died is gone from the list when its lease has run out.")]
pub(crate) struct EnginesOf {
    /// The model that the engines serve
    model: String,
    #[command(flatten)]
    asked: JobServer,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: EnginesOf) -> anyhow::Result<()> {
    let leases = weightcast::engines(&arguments.asked.options(), &arguments.model)?;
    let lines: Vec<EngineLine<'_>> = leases.iter().map(EngineLine::of).collect();
    output::print(&match arguments.json {
        true => serde_json::to_string_pretty(&lines)? + "\n",
        false => table(&lines),
    })
}

/// One engine, as it is printed.
#[derive(Serialize)]
struct EngineLine<'a> {
    engine: &'a str,
    state: &'static str,
    /// `None`: its workers do not serve one version.
    version: Option<u64>,
    epoch: Option<u64>,
    /// How long this is so without another word of the engine.
    lease_left_s: f64,
}

impl<'a> EngineLine<'a> {
    fn of(lease: &'a RoutingLease) -> Self {
        Self {
            engine: &lease.engine,
            state: lease.state.name(),
            version: lease.version.map(|version| version.number),
            epoch: lease.version.map(|version| version.epoch.0),
            lease_left_s: lease.left.0 as f64 / 1e9,
        }
    }
}

fn table(lines: &[EngineLine<'_>]) -> String {
    if lines.is_empty() {
        return "no engine has a routing lease\n".to_owned();
    }
    let mut text = String::new();
    for line in lines {
        let version = line.version.map_or("-".to_owned(), |version| version.to_string());
        let _ = writeln!(
            text,
            "{:<32} {:<9} version {version:<8} lease {:.1} s",
            line.engine, line.state, line.lease_left_s
        );
    }
    // An engine's name is a client's text, whose control characters could change the terminal.
    text.retain(|character| character == '\n' || !character.is_control());
    text
}

#[cfg(test)]
mod tests {
    use weightcast::engine_update::RoutingState;
    use weightcast_protocol::{Epoch, Span, Version};

    use super::*;

    fn lease(state: RoutingState, version: Option<u64>) -> RoutingLease {
        let version = version.map(|number| Version { epoch: Epoch(3), number });
        let engine = "http://host:8000\x1b[2J".to_owned();
        RoutingLease { engine, life: 1, state, version, left: Span::from_millis(2_500) }
    }

    #[test]
    fn an_engine_is_a_line_or_an_object() {
        let leases = [lease(RoutingState::Admitted, Some(7)), lease(RoutingState::Standing, None)];
        let lines: Vec<EngineLine<'_>> = leases.iter().map(EngineLine::of).collect();
        let shown = table(&lines);
        assert!(!shown.contains('\x1b'));
        let shown: Vec<&str> = shown.lines().collect();
        assert!(shown[0].ends_with("admitted  version 7        lease 2.5 s"), "{shown:?}");
        assert!(shown[1].ends_with("standing  version -        lease 2.5 s"), "{shown:?}");
        let told = serde_json::to_value(&lines[0]).unwrap();
        let expected = serde_json::json!({
            "engine": "http://host:8000\x1b[2J", "state": "admitted", "version": 7, "epoch": 3,
            "lease_left_s": 2.5
        });
        assert_eq!(told, expected);
        assert_eq!(table(&[]), "no engine has a routing lease\n");
    }
}
