//! What clients with the token may take of a server: counted, bounded, and theirs to wait for.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use weightcast::transport::Secret;
use weightcast::wire::reference_server_client::ReferenceServerClient;
use weightcast::wire::{
    ClientFrame, GetManifestRequest, ManifestPage, Open, ProbeRequest, StatusReply, StatusRequest,
    client_frame,
};
use weightcast::{ServeConfig, Server, serve};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// The largest manifest.
const LARGEST: u64 = 64 << 20;
const PAGE: usize = 64 << 10;

fn server() -> Server {
    let lease = Duration::from_secs(600); // no client here renews it
    serve(ServeConfig { token: Some(Secret::new(TOKEN)), lease, ..ServeConfig::default() }).unwrap()
}

fn request<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {TOKEN}").parse().unwrap());
    request
}

/// A client with a connection of its own.
fn client(server: &Server) -> ReferenceServerClient<Channel> {
    let endpoint = Endpoint::from_shared(server.address().to_owned()).unwrap();
    ReferenceServerClient::new(endpoint.connect_lazy())
}

/// A manifest's name, and its pages.
fn manifest(content: &[u8]) -> (Vec<u8>, Vec<ManifestPage>) {
    let digest = blake3::hash(content).as_bytes()[..16].to_vec();
    let mut pages: Vec<_> = content
        .chunks(PAGE)
        .map(|data| ManifestPage { data: data.to_vec().into(), ..ManifestPage::default() })
        .collect();
    (pages[0].digest, pages[0].size) = (digest.clone(), content.len() as u64);
    (digest, pages)
}

/// The first page of a manifest of which nothing else comes, as long as the sender lives.
fn unfinished(size: u64) -> (mpsc::Sender<ManifestPage>, ReceiverStream<ManifestPage>) {
    let (sender, pages) = mpsc::channel(1);
    let digest = size.to_le_bytes().repeat(2);
    sender.try_send(ManifestPage { digest, size, data: vec![0; 9].into() }).unwrap();
    (sender, ReceiverStream::new(pages))
}

/// Manifests that are never finished, and how each ends: two on each of so many connections.
async fn stalled(server: &Server, connections: usize, size: u64) -> JoinSet<Code> {
    let mut stalled = JoinSet::new();
    for _ in 0..connections {
        let mut client = client(server);
        // One after the other: the newest of those that have not shown the token are kept.
        client.probe(request(ProbeRequest::default())).await.unwrap();
        for _ in 0..2 {
            let mut client = client.clone();
            stalled.spawn(async move {
                let (_sender, pages) = unfinished(size);
                client.put_manifest(request(pages)).await.unwrap_err().code()
            });
        }
    }
    stalled
}

/// All that these connections have sent so far is there.
async fn settled(server: &Server) {
    client(server).probe(request(ProbeRequest::default())).await.unwrap();
}

/// Whatever is done, before so many have ended; how the first of them did.
async fn before<T>(
    many: usize,
    ends: &mut JoinSet<Code>,
    done: impl Future<Output = T>,
) -> (T, Option<Code>) {
    let mut done = std::pin::pin!(done);
    let mut first = None;
    for _ in 0..many {
        tokio::select! {
            done = &mut done => return (done, first),
            Some(code) = ends.join_next() => first = first.or(Some(code.unwrap())),
        }
    }
    panic!("{many} that were never finished have ended before")
}

#[tokio::test]
async fn unfinished_manifests_are_let_go_and_keep_nobody_out_for_longer() {
    let server = server();
    // Many more than there is room for; none sends more than a page.
    let mut stalled = stalled(&server, 64, LARGEST).await;
    settled(&server).await;
    let (digest, pages) = manifest(&[7; 3 * PAGE + 1]);
    let mut honest = client(&server);
    let honest = async move {
        honest.put_manifest(request(tokio_stream::iter(pages))).await.unwrap();
        let back = honest.get_manifest(request(GetManifestRequest { digest })).await.unwrap();
        back.into_inner().map(Result::unwrap).collect::<Vec<_>>().await
    };
    // They are let go two at a time.
    let (pages, ended) = before(16, &mut stalled, honest).await;
    let sizes: Vec<_> = pages.iter().map(|page| (page.size, page.data.len())).collect();
    assert_eq!(sizes, [(3 * PAGE as u64 + 1, PAGE), (0, PAGE), (0, PAGE), (0, 1)]);
    let ended = match ended {
        Some(code) => code,
        None => stalled.join_next().await.unwrap().unwrap(),
    };
    assert_eq!(ended, Code::DeadlineExceeded);
}

#[tokio::test]
async fn a_connection_sends_two_manifests_at_a_time() {
    let server = server();
    let client = client(&server);
    let mut stalled = JoinSet::new();
    for _ in 0..3 {
        let mut client = client.clone();
        stalled.spawn(async move {
            let (_sender, pages) = unfinished(LARGEST);
            client.put_manifest(request(pages)).await.unwrap_err().code()
        });
    }
    let mut codes = Vec::new();
    while let Some(code) = stalled.join_next().await {
        codes.push(code.unwrap());
    }
    assert_eq!(codes, [Code::Aborted, Code::DeadlineExceeded, Code::DeadlineExceeded]);
}

#[tokio::test]
async fn where_too_many_manifests_wait_some_are_told_to_come_again() {
    let server = server();
    let mut stalled = stalled(&server, 280, LARGEST).await;
    while let Some(code) = stalled.join_next().await {
        match code.unwrap() {
            Code::Aborted => return,
            code => assert_eq!(code, Code::DeadlineExceeded),
        }
    }
    panic!("all of them waited");
}

/// Sends these pages and no more, for as long as the sender lives.
async fn put(
    server: &Server,
    pages: Vec<ManifestPage>,
) -> (mpsc::Sender<ManifestPage>, JoinHandle<Result<(), Status>>) {
    let (sender, outgoing) = mpsc::channel(1);
    let mut client = client(server);
    let asked = tokio::spawn(async move {
        client.put_manifest(request(ReceiverStream::new(outgoing))).await.map(|_| ())
    });
    for page in pages {
        sender.send(page).await.unwrap();
    }
    (sender, asked)
}

/// Waits until the server takes what is sent: it has room for it.
async fn taken(sender: &mpsc::Sender<ManifestPage>, pages: usize) {
    for _ in 0..pages {
        sender
            .send(ManifestPage { data: vec![0; PAGE].into(), ..Default::default() })
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_manifest_that_another_brought_meanwhile_is_not_sent() {
    let server = server();
    // What is left of the room is what one manifest of 3 MiB takes. These have time for more: they
    // sent 16 MiB at once.
    let mut held = Vec::new();
    for (number, size) in [64, 64, 60].into_iter().enumerate() {
        let digest = vec![number as u8; 16];
        let first = ManifestPage { digest, size: size << 20, data: vec![0; 9].into() };
        let put = put(&server, vec![first]).await;
        taken(&put.0, 256).await;
        held.push(put);
    }
    let (_, mut pages) = manifest(&vec![5; 3 << 20]);
    let last = pages.pop().unwrap();
    let first = pages[0].clone();
    let (sender, one) = put(&server, pages).await;
    let (_waits, other) = put(&server, vec![first]).await;
    settled(&server).await;
    sender.send(last).await.unwrap();
    drop(sender);
    one.await.unwrap().unwrap();
    other.await.unwrap().unwrap(); // of which only a page was ever sent
}

#[tokio::test]
async fn a_manifest_is_what_its_first_page_says() {
    type Change = fn(&mut Vec<ManifestPage>);
    let (server, content) = (server(), [3; 2 * PAGE]);
    let put = async |change: Change| {
        let (_, mut pages) = manifest(&content);
        change(&mut pages);
        client(&server).put_manifest(request(tokio_stream::iter(pages))).await
    };
    let refused: [(Change, Code); 5] = [
        (|pages| pages[0].size = LARGEST + 1, Code::ResourceExhausted),
        (|pages| pages[0].size -= 1, Code::InvalidArgument),
        (|pages| drop(pages.pop()), Code::InvalidArgument),
        (|pages| pages[0].digest[0] ^= 1, Code::InvalidArgument),
        (|pages| pages[1].data = vec![3; PAGE + 1].into(), Code::InvalidArgument),
    ];
    for (change, code) in refused {
        assert_eq!(put(change).await.unwrap_err().code(), code);
    }
    put(|_| {}).await.unwrap();
}

#[tokio::test]
async fn a_manifest_that_is_stored_is_not_sent_again() {
    let (server, content) = (server(), [5; 2 * PAGE]);
    let (_, pages) = manifest(&content);
    let mut client = client(&server);
    client.put_manifest(request(tokio_stream::iter(pages.clone()))).await.unwrap();
    // Of this one, only the first page ever comes.
    let (sender, first) = mpsc::channel(1);
    sender.try_send(pages[0].clone()).unwrap();
    client.put_manifest(request(ReceiverStream::new(first))).await.unwrap();
    drop(sender);
}

#[tokio::test]
async fn a_status_of_any_size_comes_in_pages() {
    let server = server();
    let name = |number: usize| format!("{number:0>500}");
    let mut sessions = Vec::new();
    for number in 0..60 {
        let open = Open {
            protocol: weightcast_protocol::PROTOCOL,
            session: (number as u128 + 1).to_le_bytes().to_vec(),
            model: "policy".to_owned(),
            replica: name(number),
            num_shards: 1,
            role: 2,
            host: name(number),
            datacentre: name(number),
            data_address: "127.0.0.1:1".to_owned(),
            activate: true,
            ..Open::default()
        };
        let (sender, frames) = mpsc::channel(1);
        let frame = ClientFrame { body: Some(client_frame::Body::Open(open)) };
        sender.try_send(frame).unwrap();
        let opened = client(&server).session(request(ReceiverStream::new(frames))).await.unwrap();
        let mut opened = opened.into_inner();
        opened.next().await.unwrap().unwrap();
        sessions.push((sender, opened));
    }
    let pages = client(&server).status(request(StatusRequest {})).await.unwrap().into_inner();
    let pages: Vec<_> = pages.map(Result::unwrap).collect().await;
    let bytes: Vec<u8> = pages.iter().flat_map(|page| page.data.to_vec()).collect();
    assert!(pages.len() > 1 && pages[0].size == bytes.len() as u64);
    let status = <StatusReply as prost::Message>::decode(&*bytes).unwrap();
    assert_eq!(status.models[0].replicas.len(), sessions.len());
}
