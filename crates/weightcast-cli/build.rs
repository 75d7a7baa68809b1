//! Gives the build a name: a hash of the sources that `weightcast` and `weightcast-bench` share. Programs
//! of one checkout have the same name, whether what they are built of was committed or not.

use std::error::Error;
use std::path::{Path, PathBuf};

/// The crates that both programs are built of, beside external ones.
const CRATES: [&str; 8] = [
    "weightcast",
    "weightcast-cli",
    "weightcast-fleet",
    "weightcast-plan",
    "weightcast-protocol",
    "weightcast-sim",
    "weightcast-testkit",
    "weightcast-transport",
];

fn main() -> Result<(), Box<dyn Error>> {
    let mut files = vec![PathBuf::from("../../Cargo.lock")];
    for name in CRATES {
        for within in ["src", "proto"] {
            list(&Path::new("..").join(name).join(within), &mut files)?;
        }
    }
    // A package of one crate has none of the others beside it.
    files.retain(|file| file.is_file());
    files.sort();
    let mut hash = FNV_OFFSET;
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
        hash = hashed(hash, file.to_string_lossy().as_bytes());
        hash = hashed(hash, &std::fs::read(file)?);
    }
    println!("cargo:rustc-env=WEIGHTCAST_SOURCES={hash:016x}");
    Ok(())
}

/// Adds the files of a folder, if there is one.
fn list(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    if !folder.is_dir() {
        return Ok(());
    }
    // The folder too: a new file changes it.
    println!("cargo:rerun-if-changed={}", folder.display());
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() { list(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

/// FNV-1a, which is no secret: nobody is kept from forging a build's name.
fn hashed(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
