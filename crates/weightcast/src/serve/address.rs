//! Where a server listens, and what its clients must show there.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::error::Error;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum BindAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl BindAddress {
    /// `what` names the setting, for an error.
    pub(super) fn parse(what: &str, text: &str) -> Result<Self, Error> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(PathBuf::from(path)));
        }
        let text = text.strip_prefix("http://").unwrap_or(text);
        text.parse().map(Self::Tcp).map_err(|_| Error::Config {
            what: what.to_owned(),
            problem: format!("{text:?} is neither IP:PORT nor unix:/PATH"),
        })
    }

    /// What clients must show here. Without a token, an address that other hosts can reach is
    /// refused, and loopback and sockets ask for this user's own token: loopback is no boundary
    /// between the users of a host. Only `insecure` lets a server ask for nothing.
    pub(super) fn guard(&self, token: bool, insecure: bool) -> Result<Guard, Error> {
        match self {
            _ if token => Ok(Guard::Given),
            _ if insecure => {
                tracing::warn!(
                    address = %self,
                    "INSECURE: anyone who reaches this address can read and replace weights"
                );
                Ok(Guard::Nothing)
            }
            _ if self.is_of_this_host() => Ok(Guard::OwnToken),
            _ => Err(Error::Config {
                what: "server address".to_owned(),
                problem: format!(
                    "{self} is reachable from other hosts: give a token file, listen on \
                     loopback, or allow it with --insecure-no-auth"
                ),
            }),
        }
    }

    /// Whether no other host reaches it.
    pub(super) fn is_of_this_host(&self) -> bool {
        match self {
            Self::Tcp(address) => address.ip().to_canonical().is_loopback(),
            Self::Unix(_) => true,
        }
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// What clients must show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// The token that the server was given.
    Given,
    /// The token of this user.
    OwnToken,
    Nothing,
}
