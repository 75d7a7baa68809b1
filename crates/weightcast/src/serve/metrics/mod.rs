//! The metrics port: `GET /metrics`, for Prometheus. A scrape reads figures, and changes nothing.
//!
//! The actor gives a [`Snapshot`](weightcast_protocol::server::Snapshot), as it does for `weightcast
//! status`. `figures` makes the text of the snapshot, with the sums of `by_model` and the `usage` of
//! this process.

mod by_model;
mod figures;
mod usage;

use std::convert::Infallible;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_stream::StreamExt;
use weightcast_transport::Secret;

use super::actor::ActorInput;
use super::address::BindAddress;
use super::admission::Admission;
use super::incoming::incoming;
use super::listener::ControlListener;
use super::visitor::Visitor;
use crate::auth;
use crate::error::Error;
use crate::limits::HEADER_BYTES;
use crate::metrics::exposition;

/// The only path.
const PATH: &str = "/metrics";

/// The metrics port, bound and not yet served.
pub(super) struct MetricsPort {
    listener: ControlListener,
    /// The token that scrapers must show, as its digest.
    token: Option<blake3::Hash>,
}

impl MetricsPort {
    /// # Errors
    /// The address cannot be bound, or other hosts reach it and the server has no token.
    pub(super) fn bind(text: &str, token: Option<&Secret>) -> Result<Self, Error> {
        let address = BindAddress::parse("metrics address", text)?;
        let token = guard(&address, token)?.map(auth::bearer_digest);
        Ok(Self { listener: ControlListener::bind(&address)?, token })
    }

    pub(super) fn address(&self) -> String {
        match &self.listener {
            ControlListener::Tcp(_, address) => format!("{address}{PATH}"),
            ControlListener::Unix(..) => self.listener.address(),
        }
    }

    /// Serves until the future is dropped.
    pub(super) async fn serve(self, inputs: mpsc::Sender<ActorInput>) {
        let address = self.address();
        let (door, _file) = match self.listener.open() {
            Ok(opened) => opened,
            Err(error) => return tracing::error!(%error, "no metrics are served on {address}"),
        };
        let scrapes = Arc::new(Scrapes { token: self.token, inputs: Mutex::new(inputs) });
        let mut visitors = incoming(door, Admission::of_scrapers());
        while let Some(Ok(visitor)) = visitors.next().await {
            tokio::spawn(serve_one(visitor, Arc::clone(&scrapes)));
        }
    }
}

/// The token that scrapers must show: none on loopback and on Unix sockets, because the figures are
/// no secret among the users of a host.
fn guard<'a>(
    address: &BindAddress,
    token: Option<&'a Secret>,
) -> Result<Option<&'a Secret>, Error> {
    match token {
        _ if address.is_of_this_host() => Ok(None),
        Some(token) => Ok(Some(token)),
        None => Err(Error::Config {
            what: "metrics address".to_owned(),
            problem: format!(
                "{address} is reachable from other hosts, and the server has no token for scrapers \
                 to show: give a token file, or serve metrics on loopback"
            ),
        }),
    }
}

/// Answers one request. [`Admission`] closes the connection if that takes too long.
async fn serve_one(visitor: Visitor, scrapes: Arc<Scrapes>) {
    let answer = service_fn(|request: Request<Incoming>| {
        let scrapes = Arc::clone(&scrapes);
        async move { Ok::<_, Infallible>(scrapes.answer(&request).await) }
    });
    let mut http = http1::Builder::new();
    http.keep_alive(false).max_buf_size(HEADER_BYTES as usize);
    if let Err(error) = http.serve_connection(TokioIo::new(visitor), answer).await {
        tracing::debug!(%error, "a scrape was broken off");
    }
}

/// What all scrapes share.
struct Scrapes {
    token: Option<blake3::Hash>,
    /// Locked for a whole scrape: the actor handles the messages of clients between two scrapes.
    inputs: Mutex<mpsc::Sender<ActorInput>>,
}

impl Scrapes {
    async fn answer<B>(&self, request: &Request<B>) -> Response<String> {
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if self.token.is_some_and(|token| !auth::is_shown(&token, given)) {
            let problem = "missing or wrong token: send the server's as a bearer token\n";
            return refusal(StatusCode::UNAUTHORIZED, problem, (WWW_AUTHENTICATE, "Bearer"));
        }
        match (request.uri().path(), request.method()) {
            (PATH, &Method::GET | &Method::HEAD) => self.scrape().await,
            (PATH, _) => refusal(StatusCode::METHOD_NOT_ALLOWED, "GET it\n", (ALLOW, "GET, HEAD")),
            _ => refusal(StatusCode::NOT_FOUND, "metrics are under /metrics\n", PLAIN),
        }
    }

    async fn scrape(&self) -> Response<String> {
        match self.text().await {
            Some(text) => with(text, (CONTENT_TYPE, exposition::CONTENT_TYPE)),
            None => refusal(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping\n", PLAIN),
        }
    }

    /// The text; `None` if the server is stopping.
    async fn text(&self) -> Option<String> {
        let inputs = self.inputs.lock().await;
        let (reply, snapshot) = oneshot::channel();
        inputs.send(ActorInput::Snapshot(reply)).await.ok()?;
        let snapshot = snapshot.await.ok()?;
        // On another thread: the actor goes on meanwhile.
        let text =
            tokio::task::spawn_blocking(move || figures::text(&snapshot, usage::of_this_process()));
        text.await.ok()
    }
}

type ScrapeHeader = (hyper::header::HeaderName, &'static str);

const PLAIN: ScrapeHeader = (CONTENT_TYPE, "text/plain; charset=utf-8");

fn with(text: String, (name, value): ScrapeHeader) -> Response<String> {
    let mut response = Response::new(text);
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

fn refusal(status: StatusCode, problem: &str, header: ScrapeHeader) -> Response<String> {
    let mut response = with(problem.to_owned(), header);
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests;
