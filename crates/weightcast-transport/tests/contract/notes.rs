//! Notes on exports, by every way that has another process at its end.

use crate::by_hand::{frame, loopback, shake_as_reader, shake_as_source, take_frame, wait_closed};
use crate::ways::{noise, soon};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use weightcast_transport::Way::{Direct, Tcp};
use weightcast_transport::limits::MAX_NOTE_BYTES;
use weightcast_transport::*;

fn server() -> DataServer {
    DataServer::bind(loopback(), Auth::default()).unwrap()
}

fn expose(server: &DataServer) -> ExportId {
    server.exports().expose(1, vec![Region::from_bytes(b"abc").unwrap()])
}

fn connect(server: &DataServer) -> Peer {
    Peer::connect_by(Tcp, server.addr(), &Auth::default(), soon()).unwrap()
}

#[test]
fn a_note_is_absent_until_it_is_there_for_good() {
    let server = server();
    for (way, note) in [(Direct, noise(70_000, 1)), (Tcp, noise(MAX_NOTE_BYTES, 2)), (Tcp, vec![])]
    {
        let peer = Peer::connect_by(way, server.addr(), &Auth::default(), soon()).unwrap();
        let (noted, other) = (expose(&server), expose(&server));
        assert_eq!(peer.note(noted, 1, soon()).unwrap(), None);
        server.exports().annotate(noted, &note).unwrap();
        for _ in 0..2 {
            assert!(peer.note(noted, 1, soon()).unwrap().unwrap() == note);
        }
        assert_eq!(peer.note(other, 1, soon()).unwrap(), None, "each export has its own");
        let again = server.exports().annotate(noted, b"another");
        assert_eq!(again, Err(NoteError::AlreadyNoted { export: noted }));
        assert!(peer.note(noted, 1, soon()).unwrap().unwrap() == note, "never replaced");
    }
}

fn early(peer: &Peer, export: ExportId, wait: Duration) -> Result<Option<Vec<u8>>, TransportError> {
    peer.early_note(export, 1, wait, soon(), &AtomicBool::new(false))
}

#[test]
fn an_early_note_stands_in_for_the_note_and_for_readers_who_ask_for_it_alone() {
    let server = server();
    let peer = connect(&server);
    let export = expose(&server);
    assert_eq!(early(&peer, export, Duration::ZERO), Ok(None));
    server.exports().annotate_early(export, b"some").unwrap();
    let again = server.exports().annotate_early(export, b"more");
    assert_eq!(again, Err(NoteError::AlreadyNoted { export }));
    assert_eq!(early(&peer, export, Duration::ZERO), Ok(Some(b"some".to_vec())));
    assert_eq!(peer.note(export, 1, soon()), Ok(None), "it is not the note");
    server.exports().annotate(export, b"all").unwrap();
    assert_eq!(early(&peer, export, Duration::ZERO), Ok(Some(b"all".to_vec())));
    assert_eq!(peer.note(export, 1, soon()), Ok(Some(b"all".to_vec())));
    server.exports().fence(export);
    let fenced = early(&peer, export, Duration::ZERO);
    assert_eq!(fenced, Err(RequestRefusal::StaleGeneration.into()));
}

/// It comes, or the export is fenced, or the reader gives up: each while the reader waits already.
#[test]
fn a_wait_for_an_early_note_ends_with_what_happens_first() {
    let server = server();
    let long = Duration::from_secs(3_600);
    for end in 0..4 {
        let (peer, export) = (connect(&server), expose(&server));
        let cancel = AtomicBool::new(false);
        let connections = server.connections();
        let found = thread::scope(|scope| {
            let waits = scope.spawn(|| peer.early_note(export, 1, long, soon(), &cancel));
            (0..1_000).for_each(|_| thread::yield_now());
            match end {
                0 => server.exports().annotate_early(export, b"some").unwrap(),
                1 => server.exports().annotate(export, b"all").unwrap(),
                2 => server.exports().fence(export),
                _ => cancel.store(true, Ordering::Release),
            }
            waits.join().unwrap()
        });
        match end {
            0 => assert_eq!(found, Ok(Some(b"some".to_vec()))),
            1 => assert_eq!(found, Ok(Some(b"all".to_vec()))),
            2 => assert_eq!(found, Err(RequestRefusal::StaleGeneration.into())),
            _ => assert_eq!(found, Err(TransportError::Cancelled)),
        }
        assert!(server.connections() <= connections);
    }
}

#[test]
fn an_oversize_note_is_refused_and_leaves_room_for_a_good_one() {
    let server = server();
    let export = expose(&server);
    let (bytes, limit) = (MAX_NOTE_BYTES + 1, MAX_NOTE_BYTES);
    let refused = server.exports().annotate(export, &vec![0; bytes]);
    assert_eq!(refused, Err(NoteError::TooLong { bytes, limit }));
    server.exports().annotate(export, b"shorter").unwrap();
    assert_eq!(connect(&server).note(export, 1, soon()).unwrap().unwrap(), b"shorter");
}

#[test]
fn a_note_is_fenced_with_its_export() {
    let server = server();
    let peer = connect(&server);
    let export = expose(&server);
    server.exports().annotate(export, b"note").unwrap();
    let refused = |export, generation| peer.note(export, generation, soon()).unwrap_err();
    assert_eq!(refused(export, 2), RequestRefusal::StaleGeneration.into());
    assert_eq!(refused(ExportId(export.0 ^ 1), 1), RequestRefusal::UnknownExport.into());
    assert_eq!(peer.note(export, 1, soon()).unwrap().unwrap(), b"note");
    let not_served = Err(NoteError::NotServed { export });
    server.exports().fence(export);
    assert_eq!(refused(export, 1), RequestRefusal::StaleGeneration.into());
    assert_eq!(server.exports().annotate(export, b"late"), not_served);
    assert!(server.exports().withdraw(export, Duration::ZERO));
    assert_eq!(refused(export, 1), RequestRefusal::UnknownExport.into());
    assert_eq!(server.exports().annotate(export, b"late"), not_served);
    let next = expose(&server);
    assert_eq!(peer.note(next, 1, soon()).unwrap(), None, "the connection stays usable");
}

#[test]
fn garbage_for_a_request_closes_its_own_connection_only() {
    let server = server();
    let export = expose(&server);
    server.exports().annotate(export, b"note").unwrap();
    let peer = connect(&server);
    let noted = frame(135, b"\x01I am the source");
    let garbage =
        [frame(5, &[0; 15]), frame(5, &[0; 17]), frame(5, &[]), frame(8, &[0; 16]), noted];
    for garbage in garbage {
        let mut socket = shake_as_reader(server.addr());
        socket.write_all(&garbage).unwrap();
        wait_closed(socket);
    }
    assert_eq!(peer.note(export, 1, soon()).unwrap().unwrap(), b"note");
}

#[test]
fn garbage_for_an_answer_is_told_apart() {
    let beyond = (2 + MAX_NOTE_BYTES as u64).to_le_bytes();
    let answers = [
        frame(135, &[]),
        frame(135, &[0, 1]),
        frame(135, &[2, 1]),
        frame(132, &[1; 16]),
        [b"WCD1", &[135, 0, 0, 0][..], &beyond].concat(),
    ];
    for answer in answers {
        let listener = TcpListener::bind(loopback()).unwrap();
        let addr = listener.local_addr().unwrap();
        let liar = thread::spawn(move || {
            let mut socket: TcpStream = shake_as_source(&listener);
            assert_eq!(take_frame(&mut socket), (5, [7_u64, 1].map(u64::to_le_bytes).concat()));
            socket.write_all(&answer).unwrap();
            wait_closed(socket);
        });
        let peer = Peer::connect_by(Tcp, addr, &Auth::default(), soon()).unwrap();
        let error = peer.note(ExportId(7), 1, soon()).unwrap_err();
        assert!(matches!(error, TransportError::Protocol { .. }), "{error}");
        liar.join().expect("the stream is not used again");
    }
}
