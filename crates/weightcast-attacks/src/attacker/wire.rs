//! The control port's messages, generated for the attacker alone.

#[allow(missing_docs, unreachable_pub, dead_code, clippy::all)]
mod control {
    tonic::include_proto!("weightcast.v1");
}

#[allow(missing_docs, unreachable_pub, dead_code, clippy::all)]
pub(crate) mod manifest {
    tonic::include_proto!("weightcast.manifest.v1");
}

pub(crate) use control::*;

/// The number of the control wire.
pub(crate) fn protocol() -> u32 {
    env!("WIRE_PROTOCOL").parse().expect("the build script has read it")
}
