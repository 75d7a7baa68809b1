//! What weightcast does with bytes from strangers: one function for each decoder and machine.
//!
//! Each takes any bytes and must come back: it panics when something is wrong. `fuzz/` feeds them
//! for as long as one likes (`make fuzz`); the tests replay the corpora under `fuzz/corpus`.

#![forbid(unsafe_code)]

mod layouts;
mod recordings;
mod server;
mod session;
mod steps;

pub use layouts::{layout_file, plan, stored_plan, stored_plan_seed};
pub use recordings::recording;
pub use server::server;
pub use session::session;
pub use steps::{InputStep, encode};
pub use weightcast_transport::fuzzing::{frame, handshake};

/// Takes any bytes.
pub type FuzzTarget = fn(&[u8]);

/// Everything that is fuzzed, by the name of its corpus.
pub const TARGETS: [(&str, FuzzTarget); 14] = [
    ("frame", frame),
    ("handshake", handshake),
    ("client_message", client_message),
    ("server_message", server_message),
    ("inspect_reply", inspect_reply),
    ("fleet", fleet),
    ("push_word", push_word),
    ("manifest", manifest),
    ("layout_file", layout_file),
    ("plan", plan),
    ("stored_plan", stored_plan),
    ("recording", recording),
    ("server", server),
    ("session", session),
];

/// A frame from a session.
pub fn client_message(bytes: &[u8]) {
    weightcast::fuzzing::client_message(bytes);
}

/// A frame from the server.
pub fn server_message(bytes: &[u8]) {
    weightcast::fuzzing::server_message(bytes);
}

/// What a server tells of a replica.
pub fn inspect_reply(bytes: &[u8]) {
    weightcast::fuzzing::inspect_reply(bytes);
}

/// A question to the register of a fleet, or an answer.
pub fn fleet(bytes: &[u8]) {
    weightcast::fuzzing::fleet(bytes);
}

/// A word of a push.
pub fn push_word(bytes: &[u8]) {
    weightcast::fuzzing::push_word(bytes);
}

/// A layout's manifest.
pub fn manifest(bytes: &[u8]) {
    weightcast::fuzzing::manifest(bytes);
}
