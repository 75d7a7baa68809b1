//! The token that clients show: from a file or the environment, never from the command line.

use std::fs;
use std::path::Path;

use weightcast_transport::Secret;

use crate::Error;

/// Shortest token that is accepted: 128 bits in hexadecimal.
const SHORTEST: usize = 32;

/// Reads a token file: one line, at least 32 characters.
pub fn read_token(path: &Path) -> Result<Secret, Error> {
    let text = fs::read_to_string(path)
        .map_err(|e| Error::io(format!("read the token file {}", path.display()), e))?;
    let token = text.trim();
    if token.len() < SHORTEST || !token.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(Error::Config {
            what: format!("token file {}", path.display()),
            problem: format!("a token is one line of at least {SHORTEST} printable characters"),
        });
    }
    Ok(Secret::new(token.as_bytes().to_vec()))
}

/// A fresh token of 256 random bits, in hexadecimal.
pub fn new_token() -> Result<Secret, Error> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::io("draw a token", std::io::Error::other(e.to_string())))?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret::new(hex.into_bytes()))
}

/// Value of the `authorization` header.
pub(crate) fn bearer(token: &Secret) -> String {
    format!("Bearer {}", String::from_utf8_lossy(token.expose()))
}

/// What the server compares.
pub(crate) fn bearer_digest(token: &Secret) -> blake3::Hash {
    blake3::hash(bearer(token).as_bytes())
}
