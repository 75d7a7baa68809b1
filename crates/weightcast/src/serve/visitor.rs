//! An accepted connection, as tonic takes it: bytes in and out until it is told to close.

use std::future::Future;
use std::io::{Error, ErrorKind, IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;
use tonic::transport::server::Connected;

use super::admission::{AdmittedPlace, Pass};
use super::dial_back::CallerAddress;

/// A TCP or a Unix stream.
pub(super) trait VisitorSocket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> VisitorSocket for S {}

/// What each request of a connection is told of the connection.
#[derive(Clone)]
pub(super) struct VisitorCard {
    pub(super) pass: Pass,
    pub(super) address: CallerAddress,
}

/// One connection and its place among the others.
pub(super) struct Visitor {
    socket: Box<dyn VisitorSocket>,
    address: CallerAddress,
    place: AdmittedPlace,
    cut_off: oneshot::Receiver<()>,
    cut: bool,
}

impl Visitor {
    pub(super) fn new(
        socket: Box<dyn VisitorSocket>,
        address: CallerAddress,
        (place, cut_off): (AdmittedPlace, oneshot::Receiver<()>),
    ) -> Self {
        Self { socket, address, place, cut_off, cut: false }
    }

    /// The socket, unless it is to be closed. Wakes the task when that changes.
    fn socket(&mut self, cx: &mut Context<'_>) -> Result<Pin<&mut dyn VisitorSocket>> {
        // The book holds the sender as long as this place, so ready means closed. `cut` keeps the
        // answer: a receiver must not be polled again once it is ready.
        self.cut = self.cut || Pin::new(&mut self.cut_off).poll(cx).is_ready();
        match self.cut {
            true => Err(Error::new(ErrorKind::ConnectionAborted, "closed by the server")),
            false => Ok(Pin::new(&mut *self.socket)),
        }
    }
}

impl Connected for Visitor {
    type ConnectInfo = VisitorCard;

    fn connect_info(&self) -> VisitorCard {
        VisitorCard { pass: self.place.pass(), address: self.address.clone() }
    }
}

impl AsyncRead for Visitor {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<()>> {
        self.socket(cx)?.poll_read(cx, buffer)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize>> {
        self.socket(cx)?.poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.socket(cx)?.poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.socket(cx)?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.socket(cx)?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests;
