//! Gives the machines a name: a hash of their sources. Builds of one name play each other's recordings back.

#![allow(clippy::disallowed_methods, reason = "a build script reads files")]

use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=src");
    let mut files = Vec::new();
    list(Path::new("src"), &mut files)?;
    files.sort();
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for file in &files {
        hash = hashed(hash, file.to_string_lossy().as_bytes());
        hash = hashed(hash, &std::fs::read(file)?);
    }
    // With safeguards that can be switched off, a state has another meaning.
    hash = hashed(hash, &[u8::from(std::env::var_os("CARGO_FEATURE_MUTANTS").is_some())]);
    println!("cargo:rustc-env=WEIGHTCAST_MACHINES={hash:016x}");
    Ok(())
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// FNV-1a, which is no secret: nobody is kept from forging a name.
fn hashed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
