//! The attacker's runtime: gRPC runs on a thread of its own, and attacks are blocking code.

use std::future::Future;
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Handle};

/// A request of the attacker that takes longer counts as not answered.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The runtime; its thread ends with the process.
pub(crate) fn handle() -> &'static Handle {
    static HANDLE: OnceLock<Handle> = OnceLock::new();
    HANDLE.get_or_init(|| {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let handle = runtime.handle().clone();
        std::thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
        handle
    })
}

/// Waits for an answer, but not for ever.
pub(crate) fn run<T>(future: impl Future<Output = T>) -> Result<T> {
    run_for(PATIENCE, future)
}

/// [`run`] with another patience.
pub(crate) fn run_for<T>(patience: Duration, future: impl Future<Output = T>) -> Result<T> {
    let limited = async { tokio::time::timeout(patience, future).await };
    handle().block_on(limited).with_context(|| format!("no answer within {patience:?}"))
}
