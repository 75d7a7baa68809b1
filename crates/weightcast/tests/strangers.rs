//! Connections to the control port without the token: few, short-lived, and nobody else notices.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status, Streaming};
use weightcast::transport::Secret;
use weightcast::wire::reference_server_client::ReferenceServerClient;
use weightcast::wire::{
    self, ClientFrame, Heartbeat, Open, ServerFrame, StatusReply, StatusRequest, client_frame,
    server_frame,
};
use weightcast::{ServeConfig, Server, serve};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
/// Connections without the token that a server keeps.
const STRANGERS: usize = 256;
/// Kinds of HTTP/2 frames.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PING: u8 = 6;
/// What every HTTP/2 client sends first, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn server() -> Server {
    // No client here renews its lease.
    let lease = Duration::from_secs(600);
    serve(ServeConfig { token: Some(Secret::new(TOKEN)), lease, ..ServeConfig::default() }).unwrap()
}

fn request<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

/// A client with a connection of its own.
fn client(server: &Server) -> ReferenceServerClient<Channel> {
    let endpoint = Endpoint::from_shared(server.address().to_owned()).unwrap();
    ReferenceServerClient::new(endpoint.connect_lazy())
}

async fn status(server: &Server, token: &str) -> Result<StatusReply, Status> {
    let mut pages = client(server).status(request(StatusRequest {}, token)).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(page) = pages.message().await? {
        bytes.extend_from_slice(&page.data);
    }
    Ok(prost::Message::decode(&*bytes).expect("a status"))
}

/// A peer that speaks HTTP/2 by hand, and only as much as it was told.
fn raw_peer(address: &str, content: &[u8]) -> TcpStream {
    let mut peer = TcpStream::connect(address.strip_prefix("http://").unwrap()).unwrap();
    // A server that hangs up at once has the right to.
    let _ = peer.write_all(content);
    peer
}

/// The preface and a status request, without any compression (RFC 7541, 6.2.2).
fn raw_request(token: &str) -> Vec<u8> {
    let authorization = format!("Bearer {token}");
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/weightcast.v1.ReferenceServer/Status"),
        (":authority", "server"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("authorization", &authorization),
    ] {
        block.push(0);
        for text in [name, value] {
            block.push(u8::try_from(text.len()).unwrap());
            block.extend_from_slice(text.as_bytes());
        }
    }
    let (end_headers, end_stream) = (4, 1);
    let mut bytes = PREFACE.to_vec();
    for (kind, flag, body) in [(HEADERS, end_headers, &block[..]), (DATA, end_stream, &[0; 5])] {
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes()[1..]);
        bytes.extend_from_slice(&[kind, flag, 0, 0, 0, 1]);
        bytes.extend_from_slice(body);
    }
    bytes
}

/// Whether the server has not hung up; takes what it has sent.
fn is_open(peer: &mut TcpStream) -> bool {
    peer.set_nonblocking(true).unwrap();
    let mut buffer = [0; 4096];
    loop {
        match peer.read(&mut buffer) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
}

/// Waits until the server hangs up; returns what it sent.
async fn read_to_the_end(peer: TcpStream) -> Vec<u8> {
    peer.set_nonblocking(true).unwrap();
    let mut received = Vec::new();
    let _ = tokio::net::TcpStream::from_std(peer).unwrap().read_to_end(&mut received).await;
    received
}

/// A session's stream, and that it is still the same connection.
struct Session {
    sender: mpsc::Sender<ClientFrame>,
    frames: Streaming<ServerFrame>,
    beats: u64,
}

impl Session {
    async fn open(server: &Server) -> Self {
        let (sender, receiver) = mpsc::channel(8);
        let frames = client(server).session(request(ReceiverStream::new(receiver), TOKEN)).await;
        let mut session = Self { sender, frames: frames.unwrap().into_inner(), beats: 0 };
        let opened = session
            .ask(client_frame::Body::Open(Open {
                protocol: weightcast_protocol::PROTOCOL,
                session: vec![7; 16],
                model: "policy".to_owned(),
                replica: "rollout".to_owned(),
                num_shards: 1,
                role: wire::Role::Rollout.into(),
                data_address: "127.0.0.1:1".to_owned(),
                activate: true,
                ..Open::default()
            }))
            .await;
        assert!(matches!(opened, server_frame::Body::Opened(_)), "{opened:?}");
        session
    }

    async fn ask(&mut self, body: client_frame::Body) -> server_frame::Body {
        self.sender.send(ClientFrame { body: Some(body) }).await.unwrap();
        let frame = self.frames.message().await.unwrap();
        frame.expect("the server ended the stream").body.unwrap()
    }

    async fn is_served(&mut self) {
        self.beats += 1;
        let sent_at = self.beats;
        let answer =
            self.ask(client_frame::Body::Heartbeat(Heartbeat { sent_at, progress: None })).await;
        assert!(matches!(answer, server_frame::Body::HeartbeatAck(_)), "{answer:?}");
    }
}

/// One of the flood's connections: with nothing, half a preface, a preface, a wrong token.
fn stranger(address: &str, index: usize) -> TcpStream {
    let wrong = raw_request(&TOKEN.replace('0', "1"));
    raw_peer(address, [b"", &PREFACE[..12], PREFACE, &wrong][index % 4])
}

#[tokio::test]
async fn a_flood_takes_places_from_strangers_alone() {
    let server = server();
    let mut session = Session::open(&server).await;
    let mut flood: Vec<_> = (0..STRANGERS + 128).map(|i| stranger(server.address(), i)).collect();
    // Came after the flood, so it has been let in; and whoever had to go for that has gone.
    status(&server, TOKEN).await.unwrap();
    let open = flood.iter_mut().filter_map(|peer| is_open(peer).then_some(())).count();
    assert!(open <= STRANGERS, "{open} are open");
    session.is_served().await;
    for peer in flood {
        read_to_the_end(peer).await;
    }
    session.is_served().await;
    assert_eq!(status(&server, TOKEN).await.unwrap().sessions, 1);
}

#[tokio::test]
async fn clients_come_in_while_strangers_push() {
    let server = server();
    let mut session = Session::open(&server).await;
    let over = Arc::new(AtomicBool::new(false));
    let (is_over, address) = (Arc::clone(&over), server.address().to_owned());
    let pushing = std::thread::spawn(move || {
        let mut flood: Vec<_> = (0..STRANGERS).map(|i| stranger(&address, i)).collect();
        for index in (0..STRANGERS).cycle() {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            flood[index] = stranger(&address, index);
        }
    });
    for _ in 0..100 {
        status(&server, TOKEN).await.unwrap();
    }
    session.is_served().await;
    over.store(true, Ordering::Relaxed);
    pushing.join().unwrap();
}

#[tokio::test]
async fn a_flood_pushes_nobody_of_another_address_out() {
    let server = server();
    let address = server.address().strip_prefix("http://").unwrap().parse().unwrap();
    let slow = tokio::net::TcpSocket::new_v4().unwrap();
    slow.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut slow = slow.connect(address).await.unwrap();
    slow.write_all(PREFACE).await.unwrap();
    let _flood: Vec<_> = (0..STRANGERS + 128).map(|i| stranger(server.address(), i)).collect();
    // Came after the flood, so all of that has been let in.
    status(&server, TOKEN).await.unwrap();
    slow.write_all(&raw_request(TOKEN)[PREFACE.len()..]).await.unwrap();
    let mut received = Vec::new();
    while !frame_kinds(&received).any(|kind| kind == HEADERS) {
        let more = slow.read_buf(&mut received).await.expect("it has its place");
        assert!(more > 0, "no answer but {}", received.escape_ascii());
    }
}

#[tokio::test]
async fn a_wrong_token_is_refused_and_the_connection_closed() {
    let server = server();
    let refused = status(&server, &TOKEN.replace('0', "1")).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
    let received = read_to_the_end(raw_peer(server.address(), &raw_request("wrong"))).await;
    // An answer, and nothing after it until its time was over.
    assert!(frame_kinds(&received).any(|kind| kind == HEADERS), "{}", received.escape_ascii());
}

#[tokio::test]
async fn a_client_that_vanished_loses_its_connection() {
    let server = server();
    // It shows the token, takes the answer, and never answers a ping.
    let received = read_to_the_end(raw_peer(server.address(), &raw_request(TOKEN))).await;
    let mut frames = frame_kinds(&received);
    assert!(frames.any(|kind| kind == HEADERS), "{}", received.escape_ascii());
    assert!(frames.any(|kind| kind == PING), "{}", received.escape_ascii());
}

fn frame_kinds(mut bytes: &[u8]) -> impl Iterator<Item = u8> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_at_checked(9)?;
        let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
        bytes = rest.get(length as usize..)?;
        Some(header[3])
    })
}

#[tokio::test]
async fn long_headers_are_refused() {
    let server = server();
    for (length, accepted) in [(7 << 10, true), (9 << 10, false)] {
        let mut request = request(StatusRequest {}, TOKEN);
        request.metadata_mut().insert("x", "a".repeat(length).parse().unwrap());
        let answered = match client(&server).status(request).await {
            Ok(pages) => pages.into_inner().message().await.is_ok_and(|page| page.is_some()),
            Err(_) => false,
        };
        assert_eq!(answered, accepted, "{length}");
    }
    status(&server, TOKEN).await.unwrap();
}
