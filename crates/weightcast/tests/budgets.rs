//! What clients with the token may take of a server: counted, bounded, and theirs to wait for.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use weightcast::transport::Secret;
use weightcast::wire::reference_server_client::ReferenceServerClient;
use weightcast::wire::{
    ClientFrame, GetManifestRequest, ManifestPage, Open, StatusReply, StatusRequest, client_frame,
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

#[tokio::test]
async fn unfinished_manifests_are_let_go_and_keep_nobody_out_for_longer() {
    let server = server();
    let mut stalled = tokio::task::JoinSet::new();
    // More than there is room for, on connections of their own; none sends more than a page.
    for _ in 0..8 {
        let mut client = client(&server);
        stalled.spawn(async move {
            let (_sender, pages) = unfinished(LARGEST);
            client.put_manifest(request(pages)).await.unwrap_err().code()
        });
    }
    let (digest, pages) = manifest(&[7; 3 * PAGE + 1]);
    let mut honest = client(&server);
    honest.put_manifest(request(tokio_stream::iter(pages))).await.unwrap();
    let back = honest.get_manifest(request(GetManifestRequest { digest })).await.unwrap();
    let pages: Vec<_> = back.into_inner().map(Result::unwrap).collect().await;
    let sizes: Vec<_> = pages.iter().map(|page| (page.size, page.data.len())).collect();
    assert_eq!(sizes, [(3 * PAGE as u64 + 1, PAGE), (0, PAGE), (0, PAGE), (0, 1)]);
    while let Some(code) = stalled.join_next().await {
        assert_eq!(code.unwrap(), Code::DeadlineExceeded);
    }
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
