//! `weightcast why`: what a replica waits for, in one sentence.

use clap::Args;
use weightcast::wire::WhyStatus;

use super::asked::JobServer;
use crate::output;

/// Arguments of `why`.
#[derive(Args)]
#[command(after_help = "\
The server reads the answer off its books: what the replica's call waits for, who holds the call up and
what that replica waits for in turn, and what ends the wait. A call that runs out of time fails with the
same sentence.")]
pub(crate) struct WhyOf {
    /// The replica
    replica: String,
    /// Its model; needed only if replicas of several models have the name
    #[arg(long)]
    model: Option<String>,
    #[command(flatten)]
    asked: JobServer,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: WhyOf) -> anyhow::Result<()> {
    let options = arguments.asked.options();
    let why = weightcast::why(&options, arguments.model.as_deref(), &arguments.replica)?;
    match arguments.json {
        true => output::print(&(why_json(&why) + "\n")),
        false => output::print(&(why.sentence + "\n")),
    }
}

/// The answer as JSON, field by field as in `proto/weightcast.proto`.
fn why_json(why: &WhyStatus) -> String {
    serde_json::to_string_pretty(why).expect("names always serialise")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_is_told_field_by_field() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let why = WhyStatus {
            sentence: "a waits for b".to_owned(),
            waits: true,
            held_up_by: names(&["b"]),
            cycle: names(&["a", "b"]),
        };
        let told: serde_json::Value = serde_json::from_str(&why_json(&why)).unwrap();
        let expected = serde_json::json!({
            "sentence": "a waits for b", "waits": true, "held_up_by": ["b"], "cycle": ["a", "b"]
        });
        assert_eq!(told, expected);
    }
}
