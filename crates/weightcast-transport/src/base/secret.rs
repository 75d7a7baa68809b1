//! The token of a job, and what both ends derive from it.

use std::fmt;
use std::sync::atomic::{Ordering, compiler_fence};

/// A secret that is never printed, and zeroed when dropped (best effort: moves leave copies).
#[derive(Clone)]
pub struct Secret(Box<[u8]>);

impl Secret {
    /// Takes the secret's bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into().into_boxed_slice())
    }

    /// The token itself, to be shown to a peer and nowhere else.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        for byte in &mut self.0 {
            // SAFETY: a valid exclusive reference; volatile, so that the store is not elided.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        compiler_fence(Ordering::SeqCst);
    }
}

/// How a data port and its readers prove themselves to each other.
#[derive(Clone, Debug, Default)]
pub struct Auth {
    /// The job's token. Without one anybody who reaches the port is served.
    pub token: Option<Secret>,
    /// Allows a port beyond loopback without a token. It is logged loudly.
    pub insecure: bool,
}

impl Auth {
    /// A token and nothing else.
    pub fn with_token(token: Secret) -> Self {
        Self { token: Some(token), insecure: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing() {
        let auth = Auth::with_token(Secret::new("open sesame"));
        assert!(!format!("{auth:?}").contains("sesame"));
    }
}
