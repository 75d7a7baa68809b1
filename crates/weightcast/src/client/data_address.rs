//! Where the data port of a handle is bound, and what peers are told of it.

use std::net::SocketAddr;

use crate::config::Options;
use crate::error::Error;

/// The address to bind.
///
/// # Errors
/// What is configured is none.
pub(crate) fn bind_address(options: &Options) -> Result<SocketAddr, Error> {
    let text = options.data_bind();
    text.parse().map_err(|_| Error::Config {
        what: "data port".to_owned(),
        problem: format!("{text:?} is not IP:PORT; WEIGHTCAST_DATA_ADVERTISE may be a name"),
    })
}

/// The address that peers are told, of a port that is bound to `bound`.
///
/// # Errors
/// Peers could not connect to it.
pub(crate) fn told_address(options: &Options, bound: SocketAddr) -> Result<String, Error> {
    match options.data_advertise() {
        Some(advertised) => Ok(advertised),
        None if bound.ip().is_unspecified() => Err(Error::Config {
            what: "data port".to_owned(),
            problem: format!(
                "bound to {bound}, which peers cannot connect to: set WEIGHTCAST_DATA_ADVERTISE to \
                 this host's name and port, or bind one of its addresses"
            ),
        }),
        None => Ok(bound.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    fn options(bind: &str, advertise: Option<&str>) -> Options {
        Options {
            data_bind: Some(bind.to_owned()),
            data_advertise: advertise.map(str::to_owned),
            ..Options::new(Role::Rollout)
        }
    }

    #[test]
    fn peers_are_told_an_address_that_they_can_connect_to() {
        for (bind, advertise, told) in [
            ("10.0.0.2:7", None, Some("10.0.0.2:7")),
            ("10.0.0.2:7", Some("host-2:9"), Some("host-2:9")),
            ("0.0.0.0:7", Some("host-2:9"), Some("host-2:9")),
            ("0.0.0.0:7", None, None),
            ("[::]:7", None, None),
        ] {
            let options = options(bind, advertise);
            let bound = bind_address(&options).unwrap();
            assert_eq!(told_address(&options, bound).ok().as_deref(), told, "{bind}");
        }
    }

    #[test]
    fn a_name_is_no_address_to_bind() {
        for bind in ["host-2:7", "10.0.0.2", "10.0.0.2:", ":7"] {
            let error = bind_address(&options(bind, None)).unwrap_err().to_string();
            assert!(error.contains(bind) && error.contains("WEIGHTCAST_DATA_ADVERTISE"), "{error}");
        }
    }
}
