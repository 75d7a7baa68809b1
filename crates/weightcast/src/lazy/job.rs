//! Which job a process belongs to, if nothing names the job.
//!
//! Programs of one job must find each other although they are started apart; programs of two
//! experiments must not. What a launcher gives to its own processes is not enough: a trainer under
//! `torchrun` has a name of the run, rollouts started beside it do not.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::environment::environment;
use crate::error::Error;

/// Characters of a directory's name that the job's name shows, and of the hash that tells it apart.
const SHOWN: usize = 24;
const HASHED: usize = 12;

/// The job of the batch system; without one, the job of this directory.
pub(crate) fn of_this_process() -> Result<String, Error> {
    let directory = std::env::current_dir().map_err(|error| Error::Config {
        what: "job name".to_owned(),
        problem: format!("this process has no directory ({error}): set WEIGHTCAST_JOB"),
    })?;
    Ok(name(environment("SLURM_JOB_ID").as_deref(), &directory))
}

fn name(slurm: Option<&str>, directory: &Path) -> String {
    if let Some(id) = slurm.map(plain).filter(|id| !id.is_empty()) {
        return format!("slurm-{id}");
    }
    let shown = directory.file_name().map_or_else(String::new, |n| plain(&n.to_string_lossy()));
    let hash = blake3::hash(directory.as_os_str().as_bytes()).to_hex();
    format!("in-{shown}-{}", &hash[..HASHED])
}

/// The characters of a text that a job's name may have, at most [`SHOWN`] of them.
fn plain(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || "._-".contains(*c)).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_job_and_another_one_another() {
        let one = name(None, Path::new("/home/me/one"));
        assert!(one.starts_with("in-one-"), "{one}");
        assert_eq!(one, name(None, Path::new("/home/me/one")));
        assert_ne!(one, name(None, Path::new("/home/you/one")));
    }

    #[test]
    fn a_batch_job_is_one_wherever_its_processes_are() {
        assert_eq!(name(Some("42"), Path::new("/a")), "slurm-42");
        assert_eq!(name(Some("42"), Path::new("/b")), "slurm-42");
        assert_ne!(name(Some("43"), Path::new("/a")), "slurm-42");
    }

    #[test]
    fn any_directory_and_id_make_a_name_that_a_job_can_have() {
        let long = format!("/{}", "ü x".repeat(99));
        for (slurm, directory) in
            [(None, "/"), (None, "/.hidden"), (None, &*long), (Some("/.."), "/")]
        {
            let name = name(slurm, Path::new(directory));
            let allowed = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
            assert!(
                name.len() <= 64 && name.chars().all(allowed) && !name.starts_with('.'),
                "{name}"
            );
        }
    }

    #[test]
    fn a_name_shows_so_many_characters_and_no_more() {
        for (length, shown) in [(1, 1), (SHOWN - 1, SHOWN - 1), (SHOWN, SHOWN), (SHOWN + 1, SHOWN)]
        {
            let text = "x".repeat(length);
            let batch = name(Some(&text), Path::new("/d"));
            assert_eq!(batch, format!("slurm-{}", "x".repeat(shown)));
            let here = name(None, &Path::new("/d").join(&text));
            assert_eq!(here.len(), "in--".len() + shown + HASHED, "{here}");
        }
        // An id of which nothing can be shown is none.
        for nothing in [None, Some(""), Some("/ *")] {
            assert_eq!(name(nothing, Path::new("/d")), name(None, Path::new("/d")));
        }
    }
}
