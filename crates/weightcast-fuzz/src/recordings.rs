//! Files that are said to be recordings.

use weightcast_protocol::recording::{MachineKind, Recordable, Recording};
use weightcast_protocol::server::Server;
use weightcast_protocol::session::Session;

/// A file is refused, or is the same recording after another trip; its events come to an end or to an error. They are not
/// played: a machine that is made up may fail, and whoever plays it back has to expect that.
///
/// # Panics
/// If it is another recording.
pub fn recording(bytes: &[u8]) {
    // Of itself no input has the right digest.
    let body = [b"weightcast recording 1\n", bytes].concat();
    let sealed = [&body[..], &blake3::hash(&body).as_bytes()[..16]].concat();
    for bytes in [bytes, &sealed] {
        let Ok(recording) = Recording::decode(bytes) else { continue };
        assert_eq!(Recording::decode(&recording.encode()).as_ref(), Ok(&recording));
        match recording.head.kind {
            MachineKind::Server => read_through::<Server>(&recording),
            MachineKind::Session => read_through::<Session>(&recording),
        }
    }
}

fn read_through<M: Recordable>(recording: &Recording) {
    let Ok(mut playback) = recording.play::<M>() else { return };
    while let Ok(Some(_)) = playback.next() {}
}
