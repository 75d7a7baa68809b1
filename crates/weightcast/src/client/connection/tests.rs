//! What a client makes of a server's answers, whatever they are.

use std::collections::VecDeque;
use std::future::{pending, ready};
use std::sync::Mutex;

use weightcast_protocol::{Mac, Term};

use super::*;
use crate::client::connection::port::Requested;
use crate::wire::{FleetReply, FleetRequest, ManifestPage, ProbeReply, RecordReply, StatusReply};

/// The pages of a reply, each with the size that it names.
type SaidPages = Vec<Result<(u64, Vec<u8>), Status>>;

/// What a server says to one request.
pub(in crate::client) enum Said {
    Pages(SaidPages),
    Refused(Status),
    /// Nothing, for ever.
    Silent,
}

/// A server that says what it is told to, in turn, and then nothing.
#[derive(Default)]
pub(in crate::client) struct FakePort {
    said: Mutex<VecDeque<Said>>,
    pub(in crate::client) asked: Arc<AtomicUsize>,
    probed: Mutex<Option<Requested<ProbeReply>>>,
    /// The last question about a replica.
    inspected: Arc<Mutex<Option<InspectRequest>>>,
    /// What it says of its fleet, in turn; `None` is silence.
    told: Mutex<VecDeque<Option<Result<FleetReply, Status>>>>,
}

impl FakePort {
    pub(in crate::client) fn saying(said: impl IntoIterator<Item = Said>) -> Self {
        Self { said: Mutex::new(said.into_iter().collect()), ..Self::default() }
    }

    fn probed(reply: Requested<ProbeReply>) -> Self {
        Self { probed: Mutex::new(Some(reply)), ..Self::default() }
    }

    /// One that says this of its fleet, in turn, and then nothing.
    pub(in crate::client) fn telling(
        told: impl IntoIterator<Item = Option<Result<FleetReply, Status>>>,
    ) -> Self {
        Self { told: Mutex::new(told.into_iter().collect()), ..Self::default() }
    }

    fn next<T: Send + 'static>(
        &self,
        page: impl Fn(u64, Vec<u8>) -> T + Send + 'static,
    ) -> Requested<Incoming<T>> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.said.lock().unwrap().pop_front().unwrap_or(Said::Silent) {
            Said::Silent => Box::pin(pending()),
            Said::Refused(status) => Box::pin(ready(Err(status))),
            Said::Pages(pages) => {
                let pages =
                    pages.into_iter().map(move |of| of.map(|(size, data)| page(size, data)));
                let pages: Incoming<T> = Box::pin(tokio_stream::iter(pages.collect::<Vec<_>>()));
                Box::pin(ready(Ok(pages)))
            }
        }
    }
}

impl ControlPort for FakePort {
    fn session(&self, _: mpsc::Receiver<ClientFrame>) -> Requested<Incoming<ServerFrame>> {
        Box::pin(pending())
    }

    fn probe(&self, _: ProbeRequest) -> Requested<ProbeReply> {
        self.probed.lock().unwrap().take().unwrap_or_else(|| Box::pin(pending()))
    }

    fn put_manifest(&self, _: ContentDigest, _: Bytes) -> Requested<()> {
        let said = self.next(|_, _| ());
        Box::pin(async move { said.await.map(drop) })
    }

    fn get_manifest(&self, _: GetManifestRequest) -> Requested<Incoming<ManifestPage>> {
        self.next(|size, data| ManifestPage { size, data: data.into(), ..Default::default() })
    }

    fn status(&self) -> Requested<Incoming<Page>> {
        self.next(|size, data| Page { size, data: data.into() })
    }

    fn record(&self) -> Requested<RecordReply> {
        Box::pin(pending())
    }

    fn why(&self, _: WhyRequest) -> Requested<Incoming<Page>> {
        self.next(|size, data| Page { size, data: data.into() })
    }

    fn inspect(&self, request: InspectRequest) -> Requested<Incoming<Page>> {
        *self.inspected.lock().unwrap() = Some(request);
        self.next(|size, data| Page { size, data: data.into() })
    }

    fn fleet(&self, _: FleetRequest) -> Requested<FleetReply> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        match self.told.lock().unwrap().pop_front().flatten() {
            None => Box::pin(pending()),
            Some(reply) => Box::pin(ready(reply)),
        }
    }
}

/// A connection to these servers, which are called `one`, `two` and so on.
pub(in crate::client) fn to(ports: impl IntoIterator<Item = FakePort>) -> ServerConnection {
    let named = ["one", "two", "three"].iter().zip(ports);
    let boxed = |(name, port): (&&str, FakePort)| ((*name).to_owned(), Box::new(port) as _);
    ServerConnection::to(named.map(boxed).collect())
}

/// A reply in one page.
pub(in crate::client) fn whole(bytes: &[u8]) -> Said {
    Said::Pages(vec![Ok((bytes.len() as u64, bytes.to_vec()))])
}

#[track_caller]
fn unreachable<T: std::fmt::Debug>(result: Result<T, Error>, said: [&str; 2]) {
    match result {
        Err(Error::Call(CallError::ServerUnreachable { server, reason })) => {
            assert_eq!(server, said[0]);
            assert!(reason.contains(said[1]), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_probe_tells_whether_a_server_acts_if_it_answers() {
    let proof = TermProof { term: Term(7), origin: Term(3), mac: Mac([9; 32]) };
    let acting = Ok(ProbeReply { proof: Some(term_proof_frame(proof)) });
    let passive = Ok(ProbeReply { proof: None });
    let broken = Ok(ProbeReply { proof: Some(crate::wire::TermProof::default()) });
    for (reply, told) in [
        (acting, Some(Some(proof))),
        (passive, Some(None)),
        (broken, None),
        (Err(Status::unavailable("down")), None),
    ] {
        let connection = to([FakePort::default(), FakePort::probed(Box::pin(ready(reply)))]);
        assert_eq!(connection.probe(1, proof).await, told);
    }
    let connection = to([FakePort::default()]);
    assert_eq!(connection.probe(0, proof).await, None, "it is silent");
    assert_eq!(connection.probe(1, proof).await, None, "there is none");
}

#[tokio::test]
async fn a_manifest_is_the_one_that_was_asked_for_or_an_error() {
    let bytes = vec![5; 1_000];
    let name = manifest::blob_digest(&bytes);
    let fetched =
        async |pages: SaidPages| to([FakePort::saying([Said::Pages(pages)])]).manifest(name).await;
    let page = |size, bytes: &[u8]| Ok((size, bytes.to_vec()));
    let (first, rest) = bytes.split_at(600);
    assert_eq!(fetched(vec![page(1_000, first), page(0, rest)]).await.unwrap(), bytes);
    let other = fetched(vec![page(1_000, first), page(0, &[6; 400])]).await;
    assert!(matches!(other, Err(Error::Bug(_))), "{other:?}");
    for pages in [
        vec![page(1_000, first)],
        vec![page(1_000, &bytes), page(0, &[7])],
        vec![page(1_000, first), page(1_001, rest)],
    ] {
        unreachable(fetched(pages).await, ["one", "cut off"]);
    }
    let broken = vec![page(1_000, first), Err(Status::data_loss("a hole"))];
    unreachable(fetched(broken).await, ["one", "a hole"]);
    let large = MANIFEST_BYTES as u64 + 1;
    for pages in [vec![page(large, first)], vec![page(u64::MAX, &[])]] {
        let refused = fetched(pages).await;
        assert!(matches!(refused, Err(Error::Bug(_))), "{refused:?}");
    }
    let empty = to([FakePort::saying([whole(&[])])]).manifest(manifest::blob_digest(&[])).await;
    assert_eq!(empty.unwrap(), Vec::<u8>::new());
}

#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_again_and_no_other() {
    let busy = || Said::Refused(Status::new(BUSY, "later"));
    let port = FakePort::saying([busy(), busy(), busy(), whole(&[1])]);
    let asked = Arc::clone(&port.asked);
    let bytes = to([port]).manifest(manifest::blob_digest(&[1])).await.unwrap();
    assert_eq!((bytes, asked.load(Ordering::Relaxed)), (vec![1], 4));
    for status in [Status::unavailable("down"), Status::not_found("unknown")] {
        let port = FakePort::saying([Said::Refused(status), whole(&[1])]);
        let asked = Arc::clone(&port.asked);
        assert!(to([port]).manifest(manifest::blob_digest(&[1])).await.is_err());
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}

#[tokio::test]
async fn the_server_that_was_turned_to_is_asked_and_named() {
    let refused = |why: &str| FakePort::saying([Said::Refused(Status::unavailable(why))]);
    let connection = to([refused("first"), refused("second")]);
    connection.turn_to(1);
    unreachable(connection.status().await, ["two", "second"]);
    connection.turn_to(0);
    unreachable(connection.clone().status().await, ["one", "first"]);
}

#[tokio::test]
async fn a_manifest_is_stored_where_it_is_to_be_if_it_is_not_too_large() {
    let (here, there) = (FakePort::saying([whole(&[])]), FakePort::saying([whole(&[])]));
    let asked = [&here, &there].map(|port| Arc::clone(&port.asked));
    let seen = || asked.each_ref().map(|asked| asked.load(Ordering::Relaxed));
    let connection = to([here, there]);
    let large = connection.put_manifest(vec![0; MANIFEST_BYTES + 1]).await;
    assert!(
        matches!(large, Err(Error::Call(CallError::Limit { limit, got, .. }))
            if (limit, got) == (MANIFEST_BYTES as u64, MANIFEST_BYTES as u64 + 1)),
        "{large:?}"
    );
    assert_eq!(seen(), [0, 0]);
    let name = manifest::blob_digest(&[1, 2]);
    assert_eq!(connection.put_manifest_at(1, vec![1, 2]).await.unwrap(), name);
    assert_eq!(seen(), [0, 1]);
    assert_eq!(connection.put_manifest(vec![1, 2]).await.unwrap(), name);
    assert_eq!(seen(), [1, 1]);
}

#[tokio::test]
async fn a_status_that_makes_no_sense_is_a_bug() {
    let right = StatusReply { term: 4, sessions: 2, ..StatusReply::default() };
    let connection = to([FakePort::saying([whole(&right.encode_to_vec()), whole(&[0xff; 9])])]);
    assert_eq!(connection.status().await.unwrap(), right);
    assert!(matches!(connection.status().await, Err(Error::Bug(_))));
}

#[tokio::test]
async fn as_many_bytes_as_may_be_are_taken_and_no_more() {
    let most = vec![0; MANIFEST_BYTES];
    let connection = to([FakePort::saying([whole(&[])])]);
    assert!(connection.put_manifest(most.clone()).await.is_ok(), "stored");
    let name = manifest::blob_digest(&most);
    let fetched =
        async |pages: SaidPages| to([FakePort::saying([Said::Pages(pages)])]).manifest(name).await;
    let size = MANIFEST_BYTES as u64;
    assert!(fetched(vec![Ok((size, most.clone()))]).await.is_ok(), "fetched");
    // Whatever size it says that it has.
    let more = fetched(vec![Ok((10, most)), Ok((0, vec![1]))]).await;
    assert!(matches!(more, Err(Error::Bug(_))));
    // A status may have more.
    let large = StatusReply {
        models: vec![crate::wire::ModelStatus {
            name: "n".repeat(MANIFEST_BYTES + 1),
            ..Default::default()
        }],
        ..StatusReply::default()
    };
    let connection = to([FakePort::saying([whole(&large.encode_to_vec())])]);
    assert!(connection.status().await.is_ok());
}

/// The pause before the next request doubles, up to the longest one.
#[tokio::test(start_paused = true)]
async fn a_busy_server_is_asked_after_so_long() {
    let start = tokio::time::Instant::now();
    let busy = (0..9).map(|_| Said::Refused(Status::new(BUSY, "later")));
    let port = FakePort::saying(busy.chain([whole(&[1])]));
    to([port]).manifest(manifest::blob_digest(&[1])).await.unwrap();
    let pauses = [50, 100, 200, 400, 800, 1_000, 1_000, 1_000, 1_000];
    assert_eq!(start.elapsed(), Duration::from_millis(pauses.iter().sum()));
}

#[tokio::test]
async fn whoever_shows_a_wrong_token_is_told_so_in_the_servers_words() {
    let connection = to([FakePort::default()]);
    for (status, said) in [
        (Status::unauthenticated("wrong token"), "wrong token"),
        (Status::unavailable("down"), "Unavailable: down"),
        (Status::permission_denied("no"), "PermissionDenied: no"),
    ] {
        match connection.unreachable(&status) {
            Error::Call(CallError::ServerUnreachable { server, reason }) => {
                assert_eq!((server.as_str(), reason.as_str()), ("one", said));
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_was_found_is_asked_about() {
    let port = FakePort::default();
    let inspected = Arc::clone(&port.inspected);
    let connection = to([port]);
    for found in [None, Some(Sum([1, 2]))] {
        // The question is what counts here: nobody answers.
        let asked = connection.inspect("policy", "rollout", found);
        assert!(tokio::time::timeout(Duration::ZERO, asked).await.is_err());
        let request = inspected.lock().unwrap().take().expect("it was asked");
        assert_eq!((request.model.as_str(), request.replica.as_str()), ("policy", "rollout"));
        assert_eq!(request.found.map(crate::convert::sum), found);
    }
}
