//! Who may scrape, what is answered, and what a bad client costs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use weightcast_protocol::limits::SERVER_REEL;
use weightcast_protocol::server::{Server, ServerConfig};

use super::*;
use crate::limits::{SCRAPERS, STRANGER_DEADLINE};
use crate::metrics::exposition::tests::read;
use crate::recordings::{FlightRecorder, RecordingFiles};
use crate::serve::actor;

const TOKEN: &str = "a token of thirty-two characters";
const LIMIT: Duration = Duration::from_secs(20);

fn secret() -> Secret {
    Secret::new(TOKEN)
}

#[test]
fn beyond_this_host_the_token_is_shown() {
    for (address, token, shown) in [
        ("127.0.0.1:0", false, Some(false)),
        ("127.0.0.1:0", true, Some(false)),
        ("[::1]:0", true, Some(false)),
        ("unix:/tmp/m.sock", true, Some(false)),
        ("0.0.0.0:0", true, Some(true)),
        ("[::]:0", true, Some(true)),
        ("192.0.2.1:0", true, Some(true)),
        ("0.0.0.0:0", false, None),
        ("[::]:0", false, None),
        ("192.0.2.1:0", false, None),
    ] {
        let parsed = BindAddress::parse("metrics address", address).unwrap();
        let secret = token.then(secret);
        let asks = guard(&parsed, secret.as_ref()).map(|asked| asked.is_some());
        assert_eq!(asks.as_ref().ok().copied(), shown, "{address} {token}");
        if let Err(error) = asks {
            assert!(error.to_string().contains("give a token file"), "{error}");
        }
    }
}

#[test]
fn a_server_without_a_token_serves_no_metrics_to_others() {
    let config = |metrics: &str| crate::ServeConfig {
        insecure: true,
        metrics: Some(metrics.to_owned()),
        ..crate::ServeConfig::default()
    };
    let error = crate::serve(config("0.0.0.0:0")).unwrap_err().to_string();
    assert!(error.contains("metrics address"), "{error}");
    let error = crate::serve(config("localhost")).unwrap_err().to_string();
    assert!(error.contains("metrics address"), "{error}");
    let server = crate::serve(config("127.0.0.1:0")).unwrap();
    assert!(server.metrics_address().unwrap().ends_with("/metrics"));
}

/// A metrics port in front of a real machine, on a thread of its own.
struct Scraped {
    address: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Scraped {
    fn start(address: &str, asks: bool) -> Self {
        let mut port = MetricsPort::bind(address, None).unwrap();
        port.token = asks.then(|| auth::bearer_digest(&secret()));
        let address = port.address();
        let (stop, stopped) = oneshot::channel();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let thread = std::thread::spawn(move || {
            runtime.block_on(async {
                let (inputs, queue) = mpsc::channel(actor::QUEUE);
                let machine = Server::new(ServerConfig::default());
                let machine = FlightRecorder::new(machine, SERVER_REEL, RecordingFiles::default());
                tokio::spawn(actor::run(machine, queue, None, None));
                tokio::select! {
                    () = port.serve(inputs) => {}
                    _ = stopped => {}
                }
            });
        });
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    fn connect(&self) -> TcpStream {
        let address = self.address.strip_prefix("http://").unwrap().strip_suffix("/metrics");
        let address: SocketAddr = address.unwrap().parse().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream
    }

    fn ask(&self, request: &str) -> ScrapeAnswer {
        ask(self.connect(), request)
    }
}

impl Drop for Scraped {
    fn drop(&mut self) {
        self.stop.take();
        self.thread.take().unwrap().join().unwrap();
    }
}

struct ScrapeAnswer {
    status: u16,
    head: String,
    body: String,
}

fn ask(mut stream: impl Read + Write, request: &str) -> ScrapeAnswer {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the connection ends with the answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status").parse().unwrap();
    ScrapeAnswer { status, head: head.to_lowercase(), body: body.to_owned() }
}

const GET: &str = "GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n";

#[test]
fn metrics_are_got_and_nothing_else() {
    let scraped = Scraped::start("127.0.0.1:0", false);
    let answered = scraped.ask(GET);
    assert_eq!(answered.status, 200);
    assert!(answered.head.contains("content-type: text/plain; version=0.0.4"), "{}", answered.head);
    assert_eq!(read(&answered.body)["weightcast_sessions"].samples[0].value, 0.0);
    for (line, status, said) in [
        ("GET /metrics?name=x", 200, "weightcast_term"),
        ("HEAD /metrics", 200, ""),
        ("POST /metrics", 405, "GET it"),
        ("DELETE /metrics", 405, "GET it"),
        ("GET /", 404, "/metrics"),
        ("GET /metrics/", 404, "/metrics"),
        ("GET //metrics", 404, "/metrics"),
        ("POST /weightcast.ReferenceServer/Status", 404, "/metrics"),
    ] {
        let answered = scraped.ask(&format!("{line} HTTP/1.1\r\nHost: here\r\n\r\n"));
        assert_eq!(answered.status, status, "{line}");
        assert!(answered.body.contains(said), "{line}: {}", answered.body);
        assert_eq!(answered.body.is_empty(), said.is_empty(), "{line}");
    }
}

#[test]
fn only_who_shows_the_token_is_answered() {
    let scraped = Scraped::start("127.0.0.1:0", true);
    let of = |header: &str, path: &str| {
        scraped.ask(&format!("GET {path} HTTP/1.1\r\nHost: here\r\n{header}\r\n"))
    };
    let right = format!("Authorization: Bearer {TOKEN}\r\n");
    assert_eq!(of(&right, "/metrics").status, 200);
    assert_eq!(of(&right, "/").status, 404);
    for wrong in [
        String::new(),
        format!("Authorization: {TOKEN}\r\n"),
        format!("Authorization: Bearer {TOKEN}x\r\n"),
        format!("Authorization: Bearer {}\r\n", &TOKEN[1..]),
        "Authorization: Bearer \r\n".to_owned(),
        format!("Cookie: Bearer {TOKEN}\r\n"),
    ] {
        for path in ["/metrics", "/"] {
            let answered = of(&wrong, path);
            assert_eq!(answered.status, 401, "{wrong:?}");
            assert!(answered.head.contains("www-authenticate: bearer"), "{}", answered.head);
            assert!(!answered.body.contains("weightcast_"), "{}", answered.body);
        }
    }
}

#[test]
fn a_socket_of_this_user_is_scraped_and_goes_with_its_server() {
    let token = auth::new_token().unwrap();
    let name = format!("wc-metrics-{}", token.expose()[..12].escape_ascii());
    let path = std::env::temp_dir().join(name);
    let scraped = Scraped::start(&format!("unix:{}", path.display()), false);
    assert_eq!(ask(UnixStream::connect(&path).unwrap(), GET).status, 200);
    drop(scraped);
    assert!(!path.exists());
}

#[test]
fn what_is_no_request_ends_its_connection() {
    let scraped = Scraped::start("127.0.0.1:0", false);
    let long = "x".repeat(HEADER_BYTES as usize);
    for (request, status) in [
        (format!("GET /metrics HTTP/1.1\r\nHost: here\r\nX: {long}\r\n\r\n"), 431),
        (format!("GET /{long} HTTP/1.1\r\nHost: here\r\n\r\n"), 431),
        ("nonsense\r\n\r\n".to_owned(), 400),
        ("\u{16}\u{3}\u{1} hello, TLS\r\n\r\n".to_owned(), 400),
    ] {
        assert_eq!(scraped.ask(&request).status, status, "{:.40}", request);
    }
    assert_eq!(scraped.ask(GET).status, 200);
}

/// Those that say nothing, half of a request, or do not read, give way to those that ask.
#[test]
fn slow_clients_keep_nobody_out() {
    let scraped = Scraped::start("127.0.0.1:0", false);
    let mut slow: Vec<TcpStream> = Vec::new();
    for at in 0..3 * SCRAPERS {
        let mut stream = scraped.connect();
        let said: &[u8] = [&b""[..], &GET.as_bytes()[..20], GET.as_bytes()][at % 3];
        stream.write_all(said).unwrap();
        slow.push(stream);
        if at % SCRAPERS == 0 {
            assert_eq!(scraped.ask(GET).status, 200, "behind {at}");
        }
    }
    assert_eq!(scraped.ask(GET).status, 200);
    // The oldest that has said nothing was closed for the others.
    let mut rest = Vec::new();
    let ended = slow[0].read_to_end(&mut rest);
    assert!(ended.is_err() || rest.is_empty());
}

/// The deadline is of the connection, whatever comes on it.
#[test]
fn a_connection_that_drips_is_closed() {
    assert!(STRANGER_DEADLINE < LIMIT);
    let scraped = Scraped::start("127.0.0.1:0", false);
    let mut stream = scraped.connect();
    stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let begun = std::time::Instant::now();
    stream.write_all(b"GET /metrics HTTP/1.1\r\n").unwrap();
    let closed = std::iter::repeat_with(|| {
        let dripped = stream.write_all(b"X: y\r\n");
        let mut byte = [0];
        let ended = !matches!(
            stream.read(&mut byte),
            Err(e) if matches!(e.kind(), std::io::ErrorKind::WouldBlock)
        );
        dripped.is_err() || ended
    });
    let closed = closed.take_while(|closed| !closed).all(|_| begun.elapsed() < LIMIT);
    assert!(closed, "it stays open");
}

#[tokio::test]
async fn a_server_that_stops_says_so() {
    let (inputs, queue) = mpsc::channel(1);
    drop(queue);
    let scrapes = Scrapes { token: None, inputs: Mutex::new(inputs) };
    let request = Request::get(PATH).body(()).unwrap();
    let answer = scrapes.answer(&request).await;
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(answer.body().contains("stopping"));
}
