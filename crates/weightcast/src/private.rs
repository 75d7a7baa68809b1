//! Files that nobody else may write, and secrets that nobody else may read.
//!
//! A file is looked at once it is open (`fstat`), so nothing can change between the look and the
//! use. Links need no rule of their own: the file that a link leads to has to be right.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::error::Error;

/// What other users must not be able to do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// Change it.
    Unchanged,
    /// Change or read it.
    Secret,
}

/// This user's directory for what lives as long as the machine is up; made if it is not there.
pub(crate) fn own_directory() -> Result<PathBuf, Error> {
    let own = named_directory()?;
    make_private(&own)?;
    Ok(own)
}

/// The path of [`own_directory`], which may not be there and was not looked at.
pub(crate) fn named_directory() -> Result<PathBuf, Error> {
    let own = named_within(std::env::var_os("XDG_RUNTIME_DIR"), &std::env::temp_dir());
    std::path::absolute(own).map_err(|e| Error::io("find this directory", e))
}

/// The directory within `runtime`, if the environment names one; else this user's directory within
/// `shared`.
fn named_within(runtime: Option<OsString>, shared: &Path) -> PathBuf {
    match runtime.filter(|dir| !dir.is_empty()) {
        Some(runtime) => PathBuf::from(runtime).join("weightcast"),
        None => of_this_user(shared),
    }
}

/// The name of this user's directory within one that users share.
pub(crate) fn of_this_user(directory: &Path) -> PathBuf {
    directory.join(format!("weightcast-{}", rustix::process::getuid().as_raw()))
}

/// Makes a directory that only this user can enter; a directory that is there must be such a one.
pub(crate) fn make_private(path: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().mode(0o700).create(path);
    let found = fs::symlink_metadata(path)
        .map_err(|e| Error::io(format!("make {}", path.display()), made.err().unwrap_or(e)))?;
    let user = rustix::process::getuid().as_raw();
    if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(Error::Config {
        what: format!("directory {}", path.display()),
        problem: "must belong to this user alone (mode 0700); remove it".to_owned(),
    })
}

/// Opens a file to read.
///
/// # Errors
/// It cannot be opened, or others can do with it what they must not.
pub(crate) fn open_file(what: &str, path: &Path, keep: Keep) -> Result<File, Error> {
    let file = File::open(path)
        .map_err(|e| Error::io(format!("read the {what} {}", path.display()), e))?;
    looked_at(file, what, path, keep)
}

/// Opens a directory, to be used by its descriptor.
///
/// # Errors
/// The path is no directory, cannot be opened, or others can change what is in it.
pub(crate) fn open_directory(what: &str, path: &Path) -> Result<File, Error> {
    let directory = i32::try_from(OFlags::DIRECTORY.bits()).expect("a flag of open(2)");
    let file = OpenOptions::new().read(true).custom_flags(directory).open(path);
    let file = file.map_err(|e| Error::io(format!("open the {what} {}", path.display()), e))?;
    looked_at(file, what, path, Keep::Unchanged)
}

fn looked_at(file: File, what: &str, path: &Path, keep: Keep) -> Result<File, Error> {
    let found = file
        .metadata()
        .map_err(|e| Error::io(format!("look at the {what} {}", path.display()), e))?;
    match fault_of(&found, path, keep) {
        None => Ok(file),
        Some(FileFault { found, cure }) => Err(Error::Config {
            what: format!("{what} {}", path.display()),
            problem: format!("{found}; run: {cure}"),
        }),
    }
}

/// What is wrong with who may use a file, and the command that mends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileFault {
    pub(crate) found: String,
    pub(crate) cure: String,
}

/// What others can do with a file, and must not.
pub(crate) fn fault_of(file: &Metadata, path: &Path, keep: Keep) -> Option<FileFault> {
    let seen = Seen::of(file);
    let Problem { what, cure, note } = problem(seen, rustix::process::geteuid().as_raw(), keep)?;
    Some(FileFault {
        found: format!("{what} (mode {:04o})", seen.mode),
        cure: format!("{cure} {}{note}", path.display()),
    })
}

/// Owner and mode of a file or directory.
#[derive(Clone, Copy)]
struct Seen {
    owner: u32,
    mode: u32,
}

impl Seen {
    fn of(found: &Metadata) -> Self {
        Self { owner: found.uid(), mode: found.mode() & 0o7777 }
    }
}

/// Why something must not be used, and the command that mends it.
#[derive(Debug)]
struct Problem {
    what: String,
    cure: String,
    note: &'static str,
}

/// Root's files are trusted like the user's own. A secret of root's may also be readable for a
/// group: that is how a Kubernetes `fsGroup` hands one to a pod that runs as another user.
fn problem(seen: Seen, user: u32, keep: Keep) -> Option<Problem> {
    const ROOT: u32 = 0;
    let Seen { owner, mode } = seen;
    let cured = |what: &str, cure: &str, note| {
        Some(Problem { what: what.to_owned(), cure: cure.to_owned(), note })
    };
    if owner != user && owner != ROOT {
        let what = format!("belongs to user {owner}, neither to this one ({user}) nor to root");
        return cured(&what, &format!("chown {user}"), "");
    }
    if mode & 0o022 != 0 {
        return cured("can be written by others", "chmod go-w", "");
    }
    match (keep, owner) {
        (Keep::Secret, ROOT) if mode & 0o004 != 0 => cured(
            "can be read by others",
            "chmod o-rwx",
            " (or, for a Kubernetes secret, mount it with defaultMode: 0440)",
        ),
        (Keep::Secret, owner) if owner != ROOT && mode & 0o044 != 0 => {
            cured("can be read by others", "chmod go-rwx", "")
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn who_may_do_what() {
        const ME: u32 = 1000;
        use Keep::{Secret, Unchanged};
        for (owner, mode, keep, right) in [
            (ME, 0o600, Secret, true),
            (ME, 0o400, Secret, true),
            (ME, 0o640, Secret, false),
            (ME, 0o604, Secret, false),
            (ME, 0o620, Secret, false),
            (ME, 0o602, Secret, false),
            (ME, 0o644, Unchanged, true),
            (ME, 0o755, Unchanged, true),
            (ME, 0o775, Unchanged, false),
            (ME, 0o1777, Unchanged, false),
            // A secret that Kubernetes mounts for the group of a pod; its default is for all.
            (0, 0o440, Secret, true),
            (0, 0o640, Secret, true),
            (0, 0o644, Secret, false),
            (0, 0o660, Secret, false),
            (0, 0o755, Unchanged, true),
            (0, 0o1777, Unchanged, false),
            (ME + 1, 0o600, Secret, false),
            (ME + 1, 0o700, Unchanged, false),
        ] {
            let found = problem(Seen { owner, mode }, ME, keep);
            assert_eq!(found.is_none(), right, "{owner} {mode:o} {keep:?}: {found:?}");
        }
    }

    fn fresh() -> PathBuf {
        let token = crate::auth::new_token().unwrap();
        std::env::temp_dir().join(format!("wc-own-{}", token.expose()[..12].escape_ascii()))
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_environment_that_names_no_directory_leaves_the_shared_one() {
        let named =
            |runtime: Option<&str>| named_within(runtime.map(Into::into), Path::new("/tmp"));
        let user = rustix::process::getuid().as_raw();
        let shared = PathBuf::from(format!("/tmp/weightcast-{user}"));
        assert_eq!((named(None), named(Some(""))), (shared.clone(), shared));
        assert_eq!(named(Some("/run/user/7")), Path::new("/run/user/7/weightcast"));
    }

    #[test]
    fn a_directory_is_made_for_this_user_alone_or_found_to_be_one() {
        let path = fresh();
        make_private(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o700);
        for (mode, right) in [
            (0o700, true),
            (0o500, true),
            (0o701, false),
            (0o710, false),
            (0o740, false),
            (0o777, false),
        ] {
            set_mode(&path, mode);
            let made = make_private(&path);
            assert_eq!(made.is_ok(), right, "{mode:o}: {made:?}");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, mode, "it stays as it is");
        }
        // Nor is one believed that a link leads to, or what is none.
        set_mode(&path, 0o700);
        let (link, file) = (fresh(), path.join("file"));
        std::os::unix::fs::symlink(&path, &link).unwrap();
        fs::write(&file, "").unwrap();
        set_mode(&file, 0o600);
        for no_directory in [&link, &file] {
            let error = make_private(no_directory).unwrap_err().to_string();
            assert!(error.contains(&*no_directory.to_string_lossy()), "{error}");
        }
        let nowhere = make_private(&path.join("not/there")).unwrap_err();
        assert!(matches!(nowhere, Error::Io { .. }), "{nowhere}");
        fs::remove_file(link).unwrap();
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn what_is_opened_is_looked_at() {
        let path = fresh();
        fs::write(&path, "secret").unwrap();
        for (mode, keep, right) in [
            (0o600, Keep::Secret, true),
            (0o604, Keep::Secret, false),
            (0o604, Keep::Unchanged, true),
            (0o620, Keep::Unchanged, false),
        ] {
            set_mode(&path, mode);
            match open_file("token file", &path, keep) {
                Ok(_) => assert!(right, "{mode:o}"),
                Err(error) => {
                    let error = error.to_string();
                    let shown = format!("mode {mode:04o}");
                    for part in ["token file", &*path.to_string_lossy(), &shown, "run: chmod"] {
                        assert!(!right && error.contains(part), "{part} in {error}");
                    }
                }
            }
        }
        assert!(open_directory("plan_cache", &path).is_err(), "it is a file");
        fs::remove_file(&path).unwrap();
        for error in [
            open_file("token file", &path, Keep::Secret).unwrap_err().to_string(),
            open_directory("token file", &path).unwrap_err().to_string(),
        ] {
            assert!(error.contains("token file") && error.contains(&*path.to_string_lossy()));
        }
    }
}
