//! A directory of plans, for workers that restart. A bad file costs only time: a plan that cannot
//! be read is made anew, a plan that cannot be written is made again next time. A directory that
//! others can write is refused. The directory is used by its descriptor, so it stays the directory
//! that was checked.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, renameat, statat, unlinkat};
use weightcast_plan::stored::{self, PlanName};
use weightcast_plan::{Cell, Layout, Plan};

use crate::error::Error;
use crate::limits::{STORED_PLAN_BYTES, STORED_PLANS};
use crate::private;

/// Endings of file names: of a plan, and of a plan that is being written.
const WHOLE: &str = "plan";
const HALF: &str = "plan-part";

/// The files, one for each pair of sources and target.
pub(crate) struct PlanFiles {
    path: PathBuf,
    directory: File,
}

impl PlanFiles {
    /// The files in this directory, which is made, for this user alone, if it is not there.
    ///
    /// # Errors
    /// The directory is not there and cannot be made, or others can write it.
    pub(in crate::client) fn within(path: &Path) -> Result<Self, Error> {
        if let Err(error) = DirBuilder::new().mode(0o700).create(path)
            && !path.is_dir()
        {
            return Err(Error::io(format!("keep plans in {}", path.display()), error));
        }
        let directory = private::open_directory("plan_cache", path)?;
        Ok(Self { path: path.to_owned(), directory })
    }

    /// The plan of this name, if it is there and right.
    pub(in crate::client) fn load(
        &self,
        name: &PlanName,
        target: &Layout,
        cells: &[Cell],
        sources: &[&Layout],
    ) -> Option<Plan> {
        let file = file_name(name);
        let problem = match self.read(&file) {
            Ok(bytes) => match stored::restore(&bytes, name, target, cells, sources) {
                Ok(plan) => return Some(plan),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
        };
        let directory = self.path.display();
        tracing::warn!(%directory, file, problem, "a stored plan is of no use: planning again");
        None
    }

    /// Stores a plan under this name. A failure is only logged.
    pub(super) fn save(&self, name: &PlanName, plan: &Plan) {
        let bytes = stored::encode(plan, name);
        if bytes.len() as u64 > STORED_PLAN_BYTES {
            return;
        }
        if let Err(error) = self.write(name, &bytes).and_then(|()| self.thin_out()) {
            tracing::warn!(directory = %self.path.display(), %error, "a plan is not stored");
        }
    }

    /// Writes a plan whole or not at all, even if several processes write it: into a file of its
    /// own, which then takes the plan's name. Nothing waits for the disk, because a file that a
    /// crash has emptied fails its checksum.
    fn write(&self, name: &PlanName, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
        let half = format!("{name}-{:016x}.{HALF}", u64::from_le_bytes(random));
        let new = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.directory, &half, new, Mode::RUSR | Mode::WUSR)?);
        let written = file
            .write_all(bytes)
            .and_then(|()| Ok(renameat(&self.directory, &half, &self.directory, file_name(name))?));
        if written.is_err() {
            let _ = unlinkat(&self.directory, &half, AtFlags::empty());
        }
        written
    }

    /// The bytes of a regular file that is not larger than any plan.
    fn read(&self, file: &str) -> io::Result<Vec<u8>> {
        // Others cannot write here, so a link or a pipe is our user's own mistake. Opening never
        // waits.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.directory, file, flags, Mode::empty())?);
        let found = file.metadata()?;
        if !found.is_file() || found.len() > STORED_PLAN_BYTES {
            return Err(io::Error::other(format!("no file of up to {STORED_PLAN_BYTES} bytes")));
        }
        let mut bytes = Vec::with_capacity(found.len() as usize);
        file.take(STORED_PLAN_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Removes the oldest files beyond [`STORED_PLANS`], half-written ones included.
    fn thin_out(&self) -> io::Result<()> {
        let mut ours = Vec::new();
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if !is_ours(name) {
                continue;
            }
            // Other processes thin out too: the file may be gone already.
            if let Ok(found) = statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                ours.push((found.st_mtime, found.st_mtime_nsec, name.to_owned()));
            }
        }
        ours.sort_unstable_by(|a, b| b.cmp(a));
        for (.., name) in ours.drain(STORED_PLANS.min(ours.len())..) {
            let _ = unlinkat(&self.directory, name, AtFlags::empty());
        }
        Ok(())
    }
}

fn file_name(name: &PlanName) -> String {
    format!("{name}.{WHOLE}")
}

fn is_ours(file: &CStr) -> bool {
    let file = file.to_bytes();
    [WHOLE, HALF]
        .iter()
        .any(|ending| file.strip_suffix(ending.as_bytes()).is_some_and(|stem| stem.ends_with(b".")))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};

    use super::*;
    use crate::warnings::warnings;

    fn fresh() -> PathBuf {
        let token = crate::auth::new_token().unwrap();
        std::env::temp_dir().join(format!("wc-{}", token.expose()[..12].escape_ascii()))
    }

    fn name(number: u8) -> PlanName {
        PlanName { target: [number; 16], sources: [0; 16] }
    }

    #[test]
    fn the_directory_and_its_files_are_private_and_of_bounded_number() {
        let directory = fresh();
        let files = PlanFiles::within(&directory).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&directory), 0o700);
        let start = SystemTime::UNIX_EPOCH;
        for number in 0..=STORED_PLANS as u8 {
            files.save(&name(number), &Plan::default());
            // The clock of files is coarse.
            let file = fs::File::options()
                .write(true)
                .open(directory.join(file_name(&name(number))))
                .unwrap();
            file.set_modified(start + Duration::from_secs(number.into())).unwrap();
        }
        assert_eq!(mode(&directory.join(file_name(&name(1)))), 0o600);
        fs::write(directory.join("notes"), "not ours").unwrap();
        fs::write(directory.join("left.plan-part"), "").unwrap();
        files.save(&name(200), &Plan::default());
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, STORED_PLANS + 1, "and what is not ours");
        for (number, kept) in [(0, false), (1, false), (2, false), (3, true), (200, true)] {
            assert_eq!(directory.join(file_name(&name(number))).exists(), kept, "{number}");
        }
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_is_of_no_use_is_warned_of_and_what_is_not_there_is_not() {
        let directory = fresh();
        let files = PlanFiles::within(&directory).unwrap();
        let layout = Layout::new(Vec::new(), Vec::new(), Vec::new()).unwrap();
        let load = |number| {
            let mut loaded = None;
            let said = warnings(|| loaded = files.load(&name(number), &layout, &[], &[&layout]));
            (loaded, said)
        };
        assert_eq!(load(1), (None, Vec::new()), "it is not there");
        fs::write(directory.join(file_name(&name(1))), "no plan").unwrap();
        let (loaded, said) = load(1);
        assert!(loaded.is_none());
        let parts = [&*directory.to_string_lossy(), &file_name(&name(1)), "planning again"];
        assert!(parts.iter().all(|part| said[0].contains(part)) && said.len() == 1, "{said:?}");
        let kept = |number| warnings(|| files.save(&name(number), &Plan::default()));
        assert_eq!(kept(1), Vec::<String>::new());
        assert_eq!(load(1), (Some(Plan::default()), Vec::new()));
        fs::remove_dir_all(directory).unwrap();
        let said = kept(2);
        assert!(said.len() == 1 && said[0].contains("a plan is not stored"), "{said:?}");
    }

    #[test]
    fn a_directory_that_cannot_be_is_said_at_once() {
        let nowhere = fresh().join("below");
        let error = PlanFiles::within(&nowhere).err().unwrap().to_string();
        assert!(error.contains(&*nowhere.to_string_lossy()), "{error}");
        let file = fresh();
        fs::write(&file, "").unwrap();
        assert!(PlanFiles::within(&file).is_err());
        fs::remove_file(file).unwrap();
    }
    #[test]
    fn a_directory_that_others_can_write_is_refused_by_name() {
        let (directory, link) = (fresh(), fresh());
        drop(PlanFiles::within(&directory).unwrap());
        symlink(&directory, &link).unwrap();
        for (mode, right) in [(0o700, true), (0o755, true), (0o775, false), (0o1777, false)] {
            fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
            for path in [&directory, &link] {
                match PlanFiles::within(path) {
                    Ok(_) => assert!(right, "{mode:o}"),
                    Err(error) => {
                        let error = error.to_string();
                        assert!(!right, "{error}");
                        for part in [&*path.to_string_lossy(), &format!("{mode:04o}"), "chmod"] {
                            assert!(error.contains(part), "{part} in {error}");
                        }
                    }
                }
            }
        }
        fs::remove_file(link).unwrap();
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn it_stays_the_directory_that_was_looked_at() {
        let (directory, moved) = (fresh(), fresh());
        let files = PlanFiles::within(&directory).unwrap();
        fs::rename(&directory, &moved).unwrap();
        fs::create_dir(&directory).unwrap();
        files.save(&name(1), &Plan::default());
        assert!(moved.join(file_name(&name(1))).exists());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::remove_dir_all(directory).unwrap();
        fs::remove_dir_all(moved).unwrap();
    }

    #[test]
    fn what_is_no_file_or_larger_than_any_plan_is_not_read() {
        let directory = fresh();
        let files = PlanFiles::within(&directory).unwrap();
        let path = |number| directory.join(file_name(&name(number)));
        let bound = format!("no file of up to {STORED_PLAN_BYTES} bytes");
        let read = |number| files.read(&file_name(&name(number))).map_err(|e| e.to_string());
        fs::create_dir(path(1)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path(2), Mode::RUSR | Mode::WUSR).unwrap();
        // Without bytes on the disk.
        let sparse = fs::File::create(path(3)).unwrap();
        sparse.set_len(STORED_PLAN_BYTES + 1).unwrap();
        for number in 1..=3 {
            assert_eq!(read(number), Err(bound.clone()), "{number}");
        }
        fs::write(path(4), "the bytes").unwrap();
        assert_eq!(read(4), Ok(b"the bytes".to_vec()));
        symlink(path(4), path(5)).unwrap();
        assert!(read(5).is_err(), "nobody writes links here");
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn what_cannot_take_its_place_is_not_left_half_done() {
        let directory = fresh();
        let files = PlanFiles::within(&directory).unwrap();
        // A file cannot take a directory's place.
        fs::create_dir(directory.join(file_name(&name(1)))).unwrap();
        let said = warnings(|| files.save(&name(1), &Plan::default()));
        assert!(said.len() == 1 && said[0].contains("a plan is not stored"), "{said:?}");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
        fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn of_all_files_those_of_plans_are_ours() {
        for (file, ours) in [
            (c"1-2.plan", true),
            (c"1-2-3.plan-part", true),
            (c".plan", true),
            (c"plan", false),
            (c"1-2plan", false),
            (c"1-2.plan2", false),
            (c"1-2.plan-parts", false),
            (c"1-2.planned", false),
            (c"plan.txt", false),
        ] {
            assert_eq!(is_ours(file), ours, "{file:?}");
        }
    }

    /// Files of one second are told apart too.
    #[test]
    fn the_oldest_go_by_the_nanosecond() {
        let directory = fresh();
        let files = PlanFiles::within(&directory).unwrap();
        // The older ones have the later names.
        let path = |age: usize| directory.join(format!("{:03}.{WHOLE}", 100 + age));
        for age in 0..STORED_PLANS + 3 {
            let file = fs::File::create(path(age)).unwrap();
            let time = Duration::new(1_000, 500 - age as u32);
            file.set_modified(SystemTime::UNIX_EPOCH + time).unwrap();
        }
        files.thin_out().unwrap();
        for age in [0, 1, STORED_PLANS - 1, STORED_PLANS, STORED_PLANS + 2] {
            assert_eq!(path(age).exists(), age < STORED_PLANS, "{age}");
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
