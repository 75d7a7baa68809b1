//! Generates the gRPC code from `proto/` without a protoc on the machine.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let files = protox::compile(["weightcast.proto", "manifest.proto"], ["proto"])?;
    let mut build = tonic_prost_build::configure();
    let printed = [
        "StatusReply",
        "ModelStatus",
        "VersionStatus",
        "ReplicaStatus",
        "WhyStatus",
        "ReadingStatus",
        "PendingStatus",
        "ShardStatus",
        "ReaderStatus",
        "LossStatus",
    ];
    for message in printed {
        // What `weightcast status --json` prints. A status that an older release has printed can be read.
        let derive = "#[derive(serde::Serialize, serde::Deserialize)] #[serde(default)]";
        build = build.type_attribute(message, derive);
    }
    // Clones share the bytes.
    for field in [
        "Answer.listed",
        "Assignment.shards",
        "Answer.registered",
        "Described.layouts",
        "ServerFrame.page",
        "Page.data",
        "ManifestPage.data",
    ] {
        build = build.bytes(format!(".weightcast.v1.{field}"));
    }
    build.btree_map(".").compile_fds(files)?;
    // What goes to an OpenTelemetry collector: nobody sends that to us.
    let collector = protox::compile(["otlp.proto"], ["proto"])?;
    tonic_prost_build::configure().build_server(false).compile_fds(collector)?;
    Ok(())
}
