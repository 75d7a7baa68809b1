//! The token that clients show: from a file, never from the command line or the environment, which
//! only name the file.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use weightcast_transport::Secret;

use crate::error::Error;
use crate::limits::TOKEN_BYTES;
use crate::private::{self, Keep};

/// Shortest token that is accepted: 128 bits in hexadecimal.
const SHORTEST: usize = 32;
/// The file of a user's own token, beside the directories of jobs. No job has that name: names of
/// jobs do not start with a dot.
const OWN: &str = ".token";

/// Reads a token file: one line, at least 32 characters, that no other user can change or read.
///
/// # Errors
/// It cannot be read, is no token, or others can read or change it.
pub fn read_token(path: &Path) -> Result<Secret, Error> {
    let failed = |e| Error::io(format!("read the token file {}", path.display()), e);
    let file = private::open_file("token file", path, Keep::Secret)?;
    let mut text = Vec::new();
    file.take(TOKEN_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
    let token = text.trim_ascii();
    let right = SHORTEST..=TOKEN_BYTES as usize;
    if !right.contains(&token.len()) || !token.iter().all(u8::is_ascii_graphic) {
        return Err(Error::Config {
            what: format!("token file {}", path.display()),
            problem: format!(
                "a token is one line of {SHORTEST} to {TOKEN_BYTES} printable characters"
            ),
        });
    }
    Ok(Secret::new(token.to_vec()))
}

/// The file with this user's own token, for servers of this host and their clients that were given
/// no token. Made when it is first asked for.
pub(crate) fn own_token_file() -> Result<PathBuf, Error> {
    let directory = private::own_directory().map_err(|error| Error::Config {
        what: "token".to_owned(),
        problem: format!(
            "none is given, and this user's own has no place ({error}): set WEIGHTCAST_TOKEN_FILE, \
             or XDG_RUNTIME_DIR to a directory of this user"
        ),
    })?;
    let path = directory.join(OWN);
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(path),
        Err(_) => make_token_file(&directory, &path).map(|()| path),
    }
}

/// Makes the token file whole or not at all. Processes that make it at once end up with the same
/// token: the first link stays.
fn make_token_file(directory: &Path, path: &Path) -> Result<(), Error> {
    let draft = directory.join(format!("{OWN}-{:016x}", random::<8>().map(u64::from_le_bytes)?));
    write_token(&draft, &new_token()?)?;
    let linked = fs::hard_link(&draft, path);
    let _ = fs::remove_file(&draft);
    match linked {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::io(format!("make the token file {}", path.display()), error))
        }
        _ => Ok(()),
    }
}

/// Writes a new file that only this user can read.
pub(crate) fn write_token(path: &Path, token: &Secret) -> Result<(), Error> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(token.expose()))
        .map_err(|e| Error::io(format!("write {}", path.display()), e))
}

/// A fresh token of 256 random bits, in hexadecimal.
pub fn new_token() -> Result<Secret, Error> {
    let hex: String = random::<32>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(Secret::new(hex.into_bytes()))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)
        .map_err(|e| Error::io("draw a token", std::io::Error::other(e.to_string())))?;
    Ok(bytes)
}

/// Value of the `authorization` header.
pub(crate) fn bearer(token: &Secret) -> String {
    format!("Bearer {}", String::from_utf8_lossy(token.expose()))
}

/// The digest of the header's value, which the server compares.
pub(crate) fn bearer_digest(token: &Secret) -> blake3::Hash {
    blake3::hash(bearer(token).as_bytes())
}

/// Whether an `authorization` header shows the token. Comparing digests takes the same time wherever
/// the tokens differ.
pub(crate) fn is_shown(token: &blake3::Hash, given: Option<&[u8]>) -> bool {
    given.is_some_and(|given| blake3::hash(given) == *token)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn fresh() -> PathBuf {
        let name = new_token().unwrap().expose()[..12].escape_ascii().to_string();
        let directory = std::env::temp_dir().join(format!("wc-{name}"));
        private::make_private(&directory).unwrap();
        directory
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_token_that_others_can_read_or_write_is_refused_by_name() {
        let directory = fresh();
        let (path, link) = (directory.join("token"), directory.join("link"));
        write_token(&path, &new_token().unwrap()).unwrap();
        // As a secret is mounted: `token` leads to `..data/token`.
        symlink(&path, &link).unwrap();
        for mode in [0o600, 0o400] {
            set_mode(&path, mode);
            assert!(read_token(&link).is_ok(), "{mode:o}");
        }
        for mode in [0o604, 0o644, 0o602, 0o620, 0o666] {
            set_mode(&path, mode);
            let error = read_token(&link).unwrap_err().to_string();
            for part in [&link.display().to_string(), &format!("{mode:04o}"), "chmod"] {
                assert!(error.contains(part), "{part} in {error}");
            }
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_token_has_so_many_characters() {
        let directory = fresh();
        let longest = TOKEN_BYTES as usize;
        for (length, right) in
            [(SHORTEST - 1, false), (SHORTEST, true), (longest, true), (longest + 1, false)]
        {
            let path = directory.join(length.to_string());
            write_token(&path, &Secret::new("t".repeat(length))).unwrap();
            assert_eq!(read_token(&path).is_ok(), right, "{length}");
        }
        assert!(read_token(Path::new("/dev/zero")).is_err());
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn all_that_make_the_token_at_once_have_the_same() {
        let directory = fresh();
        let path = directory.join(OWN);
        let make = || {
            make_token_file(&directory, &path).unwrap();
            read_token(&path).unwrap().expose().to_vec()
        };
        let tokens = std::thread::scope(|scope| {
            let threads = [(); 8].map(|()| scope.spawn(make));
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(tokens.iter().all(|token| *token == tokens[0]));
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "and no draft is left");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_token_is_one_line_without_what_is_around_it() {
        let directory = fresh();
        let token = "t".repeat(SHORTEST);
        for (number, (text, right)) in [
            (format!("{token}\n"), true),
            (format!("\n {token}\t\r\n"), true),
            (format!("{token} {token}"), false),
            (format!("{token}\n{token}\n"), false),
            (format!("{token}\u{e9}"), false),
            (format!("{token}\0"), false),
        ]
        .into_iter()
        .enumerate()
        {
            let path = directory.join(number.to_string());
            write_token(&path, &Secret::new(text.clone())).unwrap();
            let read = read_token(&path).ok().map(|read| read.expose().to_vec());
            assert_eq!(read, right.then(|| token.clone().into_bytes()), "{text:?}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
