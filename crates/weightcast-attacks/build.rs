//! Generates the attacker's own client from the published `.proto` files.

use std::error::Error;
use std::fs;

const PROTO: &str = "../weightcast/proto";
const PROTOCOL: &str = "../weightcast-protocol/src/lib.rs";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={PROTO}");
    println!("cargo:rerun-if-changed={PROTOCOL}");
    // The number that the control wire has: the one thing about it that no .proto file says.
    let source = fs::read_to_string(PROTOCOL)?;
    let number = source.split_once("const PROTOCOL: u32 = ").and_then(|(_, rest)| {
        let (number, _) = rest.split_once(';')?;
        number.parse::<u32>().ok()
    });
    println!("cargo:rustc-env=WIRE_PROTOCOL={}", number.ok_or("no PROTOCOL")?);
    let files = protox::compile(["weightcast.proto", "manifest.proto"], [PROTO])?;
    tonic_prost_build::configure().build_server(false).btree_map(".").compile_fds(files)?;
    Ok(())
}
