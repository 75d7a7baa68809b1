//! Variables of the environment.

/// What the names of all variables of weightcast begin with.
pub(crate) const PREFIX: &str = "WEIGHTCAST_";

/// All variables that users set, and what each means.
pub(crate) const VARIABLES: [(&str, &str); 12] = [
    ("WEIGHTCAST_SERVER", "the reference server of all handles, or the list of it and its backups"),
    ("WEIGHTCAST_TOKEN_FILE", "the file with the token that servers and data ports ask for"),
    ("WEIGHTCAST_JOB", "the job whose processes share a server that starts itself"),
    ("WEIGHTCAST_DATA_BIND", "the address that data ports bind"),
    ("WEIGHTCAST_DATA_ADVERTISE", "the address of a data port that peers are told"),
    ("WEIGHTCAST_DATA_NETWORKS", "the networks whose data ports are connected to"),
    ("WEIGHTCAST_RECORD_DIR", "the directory into which failed calls write recordings"),
    ("WEIGHTCAST_LOG", "what is logged, as RUST_LOG says it elsewhere"),
    ("WEIGHTCAST_TRACE", "the file to which every process adds the spans of its calls"),
    ("WEIGHTCAST_OTLP", "the OpenTelemetry collector to which every process sends the same spans"),
    ("WEIGHTCAST_ADDRESS", "where `weightcast serve` listens"),
    ("WEIGHTCAST_TICKET_SECRET_FILE", "the file with the secret that servers of one job share"),
];

/// A variable that is set and not empty.
pub(crate) fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// The sources of a folder, as text.
    fn sources(folder: &Path, found: &mut String) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                found.push_str(&fs::read_to_string(path).expect("a source"));
            }
        }
    }

    #[test]
    fn every_variable_that_is_read_is_known_and_no_other() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut text = String::new();
        for folder in ["src", "../weightcast-cli/src"] {
            sources(&here.join(folder), &mut text);
        }
        let reads = ["environment(\"", "env = \"", "try_from_env(\""];
        let read: BTreeSet<&str> = reads
            .into_iter()
            .flat_map(|before| text.split(before).skip(1))
            .filter_map(|rest| rest.split('"').next().filter(|name| name.starts_with(PREFIX)))
            .collect();
        assert_eq!(read, VARIABLES.into_iter().map(|(name, _)| name).collect());
    }
}
