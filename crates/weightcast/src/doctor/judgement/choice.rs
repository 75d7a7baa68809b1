//! What would be chosen between two replicas: by the server, and by the reader.

use weightcast_protocol::server::{Drawbacks, Preview, PreviewedChoice};

use crate::doctor::check::Check;

/// What is known of a source and a reader that were named.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct ChoiceFacts {
    pub(in crate::doctor) source: String,
    pub(in crate::doctor) reader: String,
    pub(in crate::doctor) pair: NamedPair,
}

/// Whether they are there.
#[derive(Clone, Debug)]
pub(in crate::doctor) enum NamedPair {
    /// One is not, or no server could be asked.
    Missing(String),
    Found(Box<FoundPair>),
}

/// A source and a reader of one model.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct FoundPair {
    /// The state of the source, as `status` shows it.
    pub(in crate::doctor) source_state: String,
    pub(in crate::doctor) preview: Previewed,
    /// Where their first shards are.
    pub(in crate::doctor) source_at: Whereabouts,
    pub(in crate::doctor) reader_at: Whereabouts,
    pub(in crate::doctor) tried: TriedWay,
}

/// Host and datacentre.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::doctor) struct Whereabouts {
    pub(in crate::doctor) host: String,
    pub(in crate::doctor) datacentre: String,
}

/// What the server says that it would choose.
#[derive(Clone, Debug)]
pub(in crate::doctor) enum Previewed {
    Told(Preview),
    /// The source holds nothing that readers may be sent to.
    NothingHeld,
    /// The server does not say.
    Unknown(String),
}

/// How the reader would come to the bytes of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::doctor) enum TriedWay {
    /// As this process did: by which way, and why.
    Reached { way: String, why: String },
    /// As this process could not.
    Unreached(String),
    /// The reader is on another host than this process, so that nothing was tried.
    NotHere,
}

/// The checks of a choice.
pub(in crate::doctor) fn judge(facts: &ChoiceFacts) -> Vec<Check> {
    let pair = match &facts.pair {
        NamedPair::Missing(why) => {
            let advice = "`weightcast status` shows the models and their replicas";
            return vec![Check::problem("choice", why, advice)];
        }
        NamedPair::Found(pair) => pair,
    };
    let mut checks = Vec::new();
    match &pair.preview {
        Previewed::Told(preview) => {
            checks.push(source(facts, pair, preview));
            checks.push(layouts(facts, preview));
        }
        Previewed::NothingHeld => checks.push(Check::not_applicable(
            SOURCE,
            format!(
                "{} ({}) holds no version that readers are sent to",
                facts.source, pair.source_state
            ),
        )),
        Previewed::Unknown(why) => checks.push(Check::not_applicable(SOURCE, why)),
    }
    checks.push(way(facts, pair));
    checks
}

const SOURCE: &str = "choice.source";

/// What the server would choose, and why or why not this source.
fn source(facts: &ChoiceFacts, pair: &FoundPair, preview: &Preview) -> Check {
    let (source, reader, version) = (&facts.source, &facts.reader, preview.version);
    let version = format!("version {} of run {}", version.number, version.epoch.0);
    if preview.held {
        let found = format!("nothing is read: {reader} holds {version} already");
        return Check::ok(SOURCE, found);
    }
    let why_not = why_not(facts, pair, preview);
    match &preview.chosen {
        PreviewedChoice::Replica { name, .. } if name == source => {
            let near = match (preview.near, pair.reader_at.datacentre.is_empty()) {
                (true, true) => "both are in one datacentre".to_owned(),
                (true, false) => format!("both are in datacentre {}", pair.reader_at.datacentre),
                (false, _) => format!(
                    "across datacentres, since nobody in {} has the version or gets it",
                    pair.reader_at.datacentre
                ),
            };
            Check::ok(SOURCE, format!("{reader} would read {version} from {source}: {near}"))
        }
        PreviewedChoice::Replica { name, drawbacks } => {
            let why = why_not.unwrap_or_else(|| compared(preview.drawbacks, *drawbacks, name));
            Check::ok(
                SOURCE,
                format!("{reader} would read {version} from {name}, not {source}: {why}"),
            )
        }
        PreviewedChoice::Busy => {
            let why = why_not.unwrap_or_else(|| "each source is busy or still being filled".into());
            Check::ok(SOURCE, format!("{reader} would wait for {version}: {why}"))
        }
        PreviewedChoice::Nobody => Check::problem(
            SOURCE,
            format!("{reader} could read {version} from nobody: every source has failed it"),
            "look at the log of the reader for the reason, and below whether the source can be \
             reached",
        ),
    }
}

/// Why the reader would not be sent to the source, whatever speaks against others.
fn why_not(facts: &ChoiceFacts, pair: &FoundPair, preview: &Preview) -> Option<String> {
    let source = &facts.source;
    if !preview.near && !preview.may_cross {
        return Some(format!(
            "{source} is in another datacentre ({}), and in that of {} ({}) somebody has the \
             version or gets it",
            pair.source_at.datacentre, facts.reader, pair.reader_at.datacentre
        ));
    }
    if preview.below {
        return Some(format!("{source} reads from {} itself", facts.reader));
    }
    let readers = preview.drawbacks.readers;
    (!preview.has_room).then(|| {
        format!(
            "{source} has no place: it has {readers} readers (`serve --fanout`, and `--host-fanout` on \
             its host), or the chain is too long"
        )
    })
}

/// The first thing that speaks for another source.
fn compared(of: Drawbacks, chosen: Drawbacks, name: &str) -> String {
    let [a, b] = [of, chosen];
    if a.accusers != b.accusers {
        return format!(
            "{} replicas have read other bytes from it than the publisher's",
            a.accusers
        );
    }
    if a.slow != b.slow {
        return "the reader has left it before, because it was slow".to_owned();
    }
    if a.depth != b.depth {
        return format!(
            "the version comes to it through {} replicas, to {name} through {}",
            a.depth, b.depth
        );
    }
    if a.readers != b.readers {
        return format!("it has {} readers, {name} has {}", a.readers, b.readers);
    }
    if a.other_host != b.other_host {
        return format!("{name} is on the reader's host");
    }
    if a.trainer != b.trainer {
        return format!("it is a trainer, whose link is spared, and {name} is none");
    }
    "both would do, and the name decides".to_owned()
}

fn layouts(facts: &ChoiceFacts, preview: &Preview) -> Check {
    const ID: &str = "choice.layouts";
    let reader = &facts.reader;
    match (preview.registered, preview.same_layouts) {
        (false, _) => {
            Check::not_applicable(ID, format!("{reader} has not registered its memory yet"))
        }
        (true, true) => Check::ok(
            ID,
            "equal, shard by shard: each shard reads one shard, and may relay while it is being \
             filled",
        ),
        (true, false) => {
            Check::ok(ID, "different: a plan cuts the bytes, once for each pair of layouts")
        }
    }
}

fn way(facts: &ChoiceFacts, pair: &FoundPair) -> Check {
    const ID: &str = "choice.way";
    let (source, reader) = (&facts.source, &facts.reader);
    match &pair.tried {
        TriedWay::Reached { way, why } => {
            Check::ok(ID, format!("bytes of {source} would come to this host by {way}: {why}"))
        }
        TriedWay::Unreached(why) => Check::problem(
            ID,
            why,
            "have the source bind or advertise an address that this host reaches \
             (WEIGHTCAST_DATA_BIND there), and look at its data-port checks",
        ),
        TriedWay::NotHere if pair.source_at.host == pair.reader_at.host => Check::not_applicable(
            ID,
            format!(
                "both are on {}: a direct read, where processes of one user may read each other. \
                 Run this there to know",
                pair.reader_at.host
            ),
        ),
        TriedWay::NotHere => Check::not_applicable(
            ID,
            format!(
                "TCP, from {} to {}. Run this on the host of {reader}, {}, to know that its port \
                 can be reached",
                pair.source_at.host, pair.reader_at.host, pair.reader_at.host
            ),
        ),
    }
}

#[cfg(test)]
mod tests;
