//! The address of a collector.

use tonic::transport::{Endpoint, Uri};

use crate::error::Error;
use crate::limits::COLLECTOR_PATIENCE;

/// Where collectors listen for OTLP/gRPC, unless an address says otherwise.
const PORT: u16 = 4_317;

/// A collector, by its address.
#[derive(Clone, Debug)]
pub(in crate::telemetry) struct Collector {
    /// `http://HOST:PORT`.
    pub(super) url: String,
    pub(super) endpoint: Endpoint,
}

impl Collector {
    /// The collector at `http://HOST:PORT`; port 4317 if none is given.
    pub(in crate::telemetry) fn parse(text: &str) -> Result<Self, Error> {
        let none = |problem: &str| malformed(format!("{problem}: http://HOST:{PORT} is needed"));
        // The text itself is not repeated: whoever put a password there would find it in logs.
        let uri: Uri = text.trim().parse().map_err(|_| none("that is no URL"))?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(none("TLS is not spoken; a collector on this host can")),
            _ => return Err(none("that does not begin with http://")),
        }
        let authority = uri.authority().ok_or_else(|| none("there is no host"))?;
        let (host, port) = (authority.host(), authority.port_u16());
        if authority.as_str().contains('@') {
            return Err(none("a user or a password in a URL is not sent"));
        }
        let rest = &authority.as_str()[host.len()..];
        if host.is_empty() || (port.is_none_or(|port| port == 0) && !rest.is_empty()) {
            return Err(none("there is no host, or no port from 1 to 65535"));
        }
        if uri.path_and_query().is_some_and(|path| path.as_str() != "/") {
            return Err(none("OTLP over gRPC has no path (that of OTLP over HTTP has)"));
        }
        let url = format!("http://{host}:{}", port.unwrap_or(PORT));
        let endpoint = Endpoint::from_shared(url.clone()).map_err(|_| none("that is no URL"))?;
        Ok(Self { url, endpoint: endpoint.connect_timeout(COLLECTOR_PATIENCE) })
    }
}

/// An error in what was given as the collector.
pub(super) fn malformed(problem: String) -> Error {
    Error::Config { what: "otlp".to_owned(), problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors() {
        for (text, url) in [
            ("http://collector:4317", "http://collector:4317"),
            (" http://127.0.0.1:1/ ", "http://127.0.0.1:1"),
            ("http://[::1]:65535", "http://[::1]:65535"),
            ("HTTP://collector", "http://collector:4317"),
        ] {
            assert_eq!(Collector::parse(text).unwrap().url, url);
        }
        for (text, problem) in [
            ("", "no URL"),
            ("http://", "no URL"),
            ("collector:4317", "begin with http://"),
            ("unix:/run/otlp.sock", "no URL"),
            ("grpc://collector:4317", "begin with http://"),
            ("https://collector:4317", "TLS"),
            ("http://:4317", "no host"),
            ("http://collector:", "no port"),
            ("http://collector:0", "no port"),
            ("http://collector:65536", "no port"),
            ("http://me:secret@collector:4317", "password"),
            ("http://collector:4318/v1/traces", "no path"),
            ("http://collector:4317/?x=1", "no path"),
            ("http://a b:4317", "no URL"),
        ] {
            let error = Collector::parse(text).expect_err(text).to_string();
            assert!(error.starts_with("otlp: ") && error.contains(problem), "{text}: {error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
