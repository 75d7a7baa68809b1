//! What all benches share: clocks, this machine, processes of this program.

pub(crate) mod machine;
pub(crate) mod measure;
pub(crate) mod program;
