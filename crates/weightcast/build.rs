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
        "ShardStatus",
        "ReaderStatus",
        "LossStatus",
    ];
    for message in printed {
        // What `weightcast status --json` prints.
        build = build.type_attribute(message, "#[derive(serde::Serialize)]");
    }
    // Clones share the bytes.
    for field in [
        "Answer.listed",
        "Assignment.shards",
        "Layouts.layouts",
        "Described.layouts",
        "ServerFrame.page",
        "Page.data",
        "ManifestPage.data",
    ] {
        build = build.bytes(format!(".weightcast.v1.{field}"));
    }
    build.btree_map(".").compile_fds(files)?;
    Ok(())
}
