//! After which questions a connection rests, and that none gets the answer to another.

use super::*;
use crate::base::error::RequestRefusal;
use crate::base::limits::TICK;
use crate::base::secret::Auth;
use crate::wire::handshake::{PROOF_BYTES, SourceSide};
use crate::wire::mac::Channel;
use crate::wire::{self, HEADER_BYTES, Header};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// What the source does when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Manner {
    Answers,
    Refuses,
    /// The answer comes with that to the next question on the connection, if there is one.
    IsSlow,
    /// As slow, but for its header.
    IsSlowInside,
    /// As slow; and the reader gives up.
    IsGivenUp,
    AnswersAnother,
    AnswersNonsense,
}

use Manner::*;

const MANNERS: [Manner; 7] =
    [Answers, Refuses, IsSlow, IsSlowInside, IsGivenUp, AnswersAnother, AnswersNonsense];

/// What no answer says.
const NONSENSE: u8 = 255;

/// A source that answers each question with its number, in the manner that the question says.
fn source(given_up: &Arc<AtomicBool>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let given_up = Arc::clone(given_up);
    thread::spawn(move || {
        while let Ok((socket, _)) = listener.accept() {
            let given_up = Arc::clone(&given_up);
            thread::spawn(move || serve(socket, &given_up));
        }
    });
    addr
}

/// One connection, until the reader closes it.
fn serve(mut socket: TcpStream, given_up: &AtomicBool) -> io::Result<()> {
    let side = SourceSide::new(Channel::Tcp);
    socket.write_all(&side.hello())?;
    let mut proof = [0; PROOF_BYTES];
    socket.read_exact(&mut proof)?;
    socket.write_all(&side.judge(&Auth::default().mac_key(), &proof).0)?;
    let mut owed = Vec::new();
    loop {
        let mut question = [0; HEADER_BYTES + 2];
        socket.read_exact(&mut question)?;
        socket.write_all(&owed)?;
        owed.clear();
        let [.., manner, number] = question;
        let manner = MANNERS[manner as usize];
        let kind = if manner == AnswersAnother { FrameKind::Progress } else { FrameKind::Noted };
        let said = if manner == AnswersNonsense { NONSENSE } else { number };
        let answer = [&Header::new(kind, 1).encode()[..], &[said]].concat();
        match manner {
            Refuses => socket.write_all(&Header::refusal(RequestRefusal::TooMuch).encode())?,
            IsSlow => owed = answer,
            IsGivenUp => {
                owed = answer;
                given_up.store(true, Ordering::Release);
            }
            IsSlowInside => {
                socket.write_all(&answer[..HEADER_BYTES])?;
                owed = answer[HEADER_BYTES..].to_vec();
            }
            Answers | AnswersAnother | AnswersNonsense => socket.write_all(&answer)?,
        }
    }
}

fn ask(
    pool: &Pool,
    manner: Manner,
    number: u8,
    patience: &Patience<'_>,
) -> Result<u8, TransportError> {
    let mut request = Vec::new();
    let start = wire::begin(&mut request, FrameKind::Note);
    request.extend([manner as u8, number]);
    wire::finish(&mut request, start);
    pool.ask(&request, FrameKind::Noted, patience, |body| match *body {
        [said] if said != NONSENSE => Ok(said),
        _ => Err(Malformed("nonsense")),
    })
}

/// Only one whose answer has come whole and was understood. What a slow source says at last is lost
/// with the connection: nobody takes it for the answer to a later question.
#[test]
fn a_connection_rests_only_when_nothing_is_under_way_on_it() {
    let given_up = Arc::new(AtomicBool::new(false));
    let addr = source(&given_up);
    let key = Auth::default().mac_key();
    let first = DataStream::open(addr, &key, &Patience::default(), || true).unwrap();
    let pool = Pool::new(key, first);
    for (number, manner) in MANNERS.into_iter().cycle().take(3 * MANNERS.len()).enumerate() {
        let number = 2 * number as u8;
        assert_eq!(pool.count(), 1, "before one that {manner:?}");
        let slow = matches!(manner, IsSlow | IsSlowInside);
        let deadline = slow.then(|| Instant::now() + TICK);
        let patience = Patience { deadline, cancel: Some(&given_up), ..Patience::default() };
        let protocol = |what| TransportError::Protocol { addr, what };
        let outcome = ask(&pool, manner, number, &patience);
        given_up.store(false, Ordering::Release);
        match (manner, &outcome) {
            (IsSlow | IsSlowInside, Err(TransportError::Timeout { .. })) => {}
            (IsSlow | IsSlowInside, other) => panic!("{manner:?}: {other:?}"),
            (Answers, found) => assert_eq!(*found, Ok(number)),
            (Refuses, found) => assert_eq!(*found, Err(RequestRefusal::TooMuch.into())),
            (IsGivenUp, found) => assert_eq!(*found, Err(TransportError::Cancelled)),
            (AnswersAnother, found) => {
                assert_eq!(*found, Err(protocol("an answer to another question")));
            }
            (AnswersNonsense, found) => assert_eq!(*found, Err(protocol("nonsense"))),
        }
        let usable = matches!(manner, Answers | Refuses);
        assert_eq!(pool.count(), usize::from(usable), "after one that {manner:?}");
        let next = ask(&pool, Answers, number + 1, &Patience::default());
        assert_eq!(next, Ok(number + 1), "after one that {manner:?}");
    }
}
