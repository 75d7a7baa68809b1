//! Accepts connections over TCP or a Unix socket and hands them to tonic.

use std::fs;
use std::future::Future;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::service::Routes;

use super::address::BindAddress;
use super::admission::Admission;
use super::incoming::{Door, incoming};
use crate::error::Error;
use crate::limits::{CONNECTION_WINDOW, HEADER_BYTES, REQUESTS, SOCKET_PATH_BYTES, STREAM_WINDOW};

/// A silent peer is asked for a sign of life this often.
const KEEPALIVE: Duration = Duration::from_secs(10);
/// A peer that gives no sign for so long is dropped. Leases say when a client is gone; this only
/// frees sockets without a peer, and must not cut off thousands because their machine is busy.
const SILENCE: Duration = Duration::from_secs(60);

/// A bound socket, not yet served.
pub(super) enum ControlListener {
    Tcp(std::net::TcpListener, String),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

impl ControlListener {
    pub(super) fn bind(address: &BindAddress) -> Result<Self, Error> {
        match address {
            BindAddress::Tcp(address) => {
                let what = || format!("listen on {address}");
                let listener =
                    std::net::TcpListener::bind(address).map_err(|e| Error::io(what(), e))?;
                listener.set_nonblocking(true).map_err(|e| Error::io(what(), e))?;
                let bound = listener.local_addr().map_err(|e| Error::io(what(), e))?;
                Ok(Self::Tcp(listener, format!("http://{bound}")))
            }
            BindAddress::Unix(path) => {
                check_length(path)?;
                let what = || format!("listen on {}", path.display());
                remove_stale(path);
                let listener = std::os::unix::net::UnixListener::bind(path)
                    .map_err(|e| Error::io(what(), e))?;
                fs::set_permissions(path, fs::Permissions::from_mode(0o600))
                    .map_err(|e| Error::io(what(), e))?;
                listener.set_nonblocking(true).map_err(|e| Error::io(what(), e))?;
                Ok(Self::Unix(listener, path.clone()))
            }
        }
    }

    pub(super) fn address(&self) -> String {
        match self {
            Self::Tcp(_, address) => address.clone(),
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    /// Serves until `until` is ready.
    pub(super) async fn serve(
        self,
        service: Routes,
        until: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let address = self.address();
        let failed = |e| Error::io(format!("serve {address}"), e);
        let router = tonic::transport::Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE))
            .http2_keepalive_timeout(Some(SILENCE))
            .max_concurrent_streams(REQUESTS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .http2_max_header_list_size(HEADER_BYTES)
            .add_routes(service);
        let (door, _file) = self.open().map_err(failed)?;
        let incoming = incoming(door, Admission::new());
        let served = tokio::select! {
            served = router.serve_with_incoming(incoming) => served,
            () = until => Ok(()),
        };
        served.map_err(|e| failed(std::io::Error::other(e)))
    }

    /// The door of the socket. Dropping the second value removes the file of a Unix socket.
    pub(super) fn open(self) -> std::io::Result<(Door, Option<SocketFile>)> {
        Ok(match self {
            Self::Tcp(listener, _) => {
                (Door::Tcp(tokio::net::TcpListener::from_std(listener)?), None)
            }
            Self::Unix(listener, path) => {
                let file = SocketFile(path);
                (Door::Unix(tokio::net::UnixListener::from_std(listener)?), Some(file))
            }
        })
    }
}

/// The file of a Unix socket, removed when it is dropped.
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Names the limit: the system only says that a path is too long.
fn check_length(path: &Path) -> Result<(), Error> {
    let length = path.as_os_str().len();
    if length <= SOCKET_PATH_BYTES {
        return Ok(());
    }
    Err(Error::Config {
        what: format!("server address unix:{}", path.display()),
        problem: format!(
            "a socket's path has at most {SOCKET_PATH_BYTES} bytes, this one has {length}: choose \
             a shorter one, or listen on 127.0.0.1:0"
        ),
    })
}

/// Removes a socket file whose server is gone: the file would make the bind fail.
fn remove_stale(path: &Path) {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket());
    if is_socket && std::os::unix::net::UnixStream::connect(path).is_err() {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;

    fn fresh() -> PathBuf {
        let token = crate::auth::new_token().unwrap();
        std::env::temp_dir().join(format!("wc-door-{}", token.expose()[..12].escape_ascii()))
    }

    fn bind(path: &Path) -> Result<ControlListener, Error> {
        ControlListener::bind(&BindAddress::Unix(path.to_owned()))
    }

    #[test]
    fn a_socket_is_for_its_own_user_alone() {
        let path = fresh();
        let listener = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(listener.address(), format!("unix:{}", path.display()));
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_socket_that_nobody_serves_any_more_is_replaced_and_nothing_else_is() {
        let path = fresh();
        let live = UnixListener::bind(&path).unwrap();
        let error = bind(&path).err().expect("somebody listens there").to_string();
        assert!(error.contains(&*path.to_string_lossy()), "{error}");
        UnixStream::connect(&path).expect("and still does");
        drop(live);
        drop(bind(&path).expect("it was left behind"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "somebody's file").unwrap();
        assert!(bind(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"somebody's file");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_path_may_be_as_long_as_the_system_takes_it() {
        let of = |length: usize| {
            let mut path = std::env::temp_dir().into_os_string();
            path.push("/");
            path.push("s".repeat(length - path.len()));
            PathBuf::from(path)
        };
        let longest = of(SOCKET_PATH_BYTES);
        drop(bind(&longest).expect("that many bytes may be"));
        fs::remove_file(longest).unwrap();
        let error = bind(&of(SOCKET_PATH_BYTES + 1)).err().unwrap().to_string();
        let got = format!("this one has {}", SOCKET_PATH_BYTES + 1);
        assert!(error.contains(&got) && error.contains("choose a shorter one"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_ends_takes_its_socket_away() {
        let path = fresh();
        let listener = bind(&path).unwrap();
        listener.serve(Routes::default(), std::future::ready(())).await.unwrap();
        assert!(!path.exists());
    }
}
