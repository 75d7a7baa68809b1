//! A directory of plans, for workers that start again. Nothing that is wrong with it matters: what
//! cannot be read is planned, what cannot be written is planned again next time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use weightcast_plan::stored::{self, PlanName};
use weightcast_plan::{Cell, Layout, Plan};

use crate::Error;
use crate::limits::{STORED_PLAN_BYTES, STORED_PLANS};

/// Ends the names of plans, and of what is to become one.
const WHOLE: &str = "plan";
const HALF: &str = "plan-part";

/// The files, one for each pair of sources and target.
pub(crate) struct PlanFiles {
    directory: PathBuf,
}

impl PlanFiles {
    /// In this directory. If there is none it is made, for this user alone.
    ///
    /// # Errors
    /// There is none and none can be made.
    pub(super) fn within(directory: &Path) -> Result<Self, Error> {
        let what = || format!("keep plans in {}", directory.display());
        if let Err(error) = DirBuilder::new().mode(0o700).create(directory)
            && !directory.is_dir()
        {
            return Err(Error::io(what(), error));
        }
        Ok(Self { directory: directory.to_owned() })
    }

    /// The plan of this name, if it is there and right.
    pub(super) fn load(
        &self,
        name: &PlanName,
        target: &Layout,
        cells: &[Cell],
        sources: &[&Layout],
    ) -> Option<Plan> {
        let path = self.path(name);
        let problem = match read(&path) {
            Ok(bytes) => match stored::restore(&bytes, name, target, cells, sources) {
                Ok(plan) => return Some(plan),
                Err(error) => error.to_string(),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => error.to_string(),
        };
        tracing::warn!(file = %path.display(), problem, "a stored plan is of no use: planning again");
        None
    }

    /// Writes the plan of this name, or not.
    pub(super) fn save(&self, name: &PlanName, plan: &Plan) {
        let bytes = stored::encode(plan, name);
        if bytes.len() as u64 > STORED_PLAN_BYTES {
            return;
        }
        if let Err(error) = self.write(name, &bytes).and_then(|()| self.thin_out()) {
            tracing::warn!(directory = %self.directory.display(), %error, "a plan is not stored");
        }
    }

    /// All or nothing, whoever else writes it. A file that a crash has emptied is found by its
    /// checksum, so nothing waits for the disk.
    fn write(&self, name: &PlanName, bytes: &[u8]) -> io::Result<()> {
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|e| io::Error::other(e.to_string()))?;
        let half = format!("{name}-{:016x}.{HALF}", u64::from_le_bytes(random));
        let half = self.directory.join(half);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
        let written = file.write_all(bytes).and_then(|()| fs::rename(&half, self.path(name)));
        written.inspect_err(|_| drop(fs::remove_file(&half)))
    }

    /// Removes the oldest files beyond [`STORED_PLANS`], also those that somebody left half-written.
    fn thin_out(&self) -> io::Result<()> {
        let mut ours: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let ending = path.extension().unwrap_or_default();
            if ending != WHOLE && ending != HALF {
                continue;
            }
            // Others thin out as well: what is gone is gone.
            if let Ok(written) = fs::symlink_metadata(&path).and_then(|found| found.modified()) {
                ours.push((written, path));
            }
        }
        ours.sort_unstable_by(|a, b| b.cmp(a));
        for (_, path) in ours.drain(STORED_PLANS.min(ours.len())..) {
            drop(fs::remove_file(path));
        }
        Ok(())
    }

    fn path(&self, name: &PlanName) -> PathBuf {
        self.directory.join(format!("{name}.{WHOLE}"))
    }
}

/// A file's bytes, if it is one and not larger than any plan.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let found = fs::symlink_metadata(path)?;
    if !found.is_file() || found.len() > STORED_PLAN_BYTES {
        return Err(io::Error::other(format!("no file of up to {STORED_PLAN_BYTES} bytes")));
    }
    let mut bytes = Vec::with_capacity(found.len() as usize);
    fs::File::open(path)?.take(STORED_PLAN_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;

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
            let file = fs::File::options().write(true).open(files.path(&name(number))).unwrap();
            file.set_modified(start + Duration::from_secs(number.into())).unwrap();
        }
        assert_eq!(mode(&files.path(&name(1))), 0o600);
        fs::write(directory.join("notes"), "not ours").unwrap();
        fs::write(directory.join("left.plan-part"), "").unwrap();
        files.save(&name(200), &Plan::default());
        let left = fs::read_dir(&directory).unwrap().count();
        assert_eq!(left, STORED_PLANS + 1, "and what is not ours");
        for (number, kept) in [(0, false), (1, false), (2, false), (3, true), (200, true)] {
            assert_eq!(files.path(&name(number)).exists(), kept, "{number}");
        }
        fs::remove_dir_all(directory).unwrap();
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
}
