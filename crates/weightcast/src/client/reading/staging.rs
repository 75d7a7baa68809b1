//! Memory beside the registered one, for staged updates: of the same shape, filled while the old
//! version is held and served, and then copied into place.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use weightcast_transport::{Filling, Region};

use super::Target;
use crate::client::memory::registration::RegisteredShard;
use crate::error::Error;

/// Bytes copied between two looks at `cancel`. They stay in the cache between read and write.
const STEP: usize = 1 << 18;

/// What was copied into place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// Fails if a staged update needs more than `limit` bytes.
pub(in crate::client) fn check_room(
    registration: &RegisteredShard,
    limit: Option<u64>,
) -> Result<(), Error> {
    let bytes = registration.regions.iter().map(|region| region.len() as u64).sum();
    match limit {
        Some(limit) if bytes > limit => Err(Error::NoRoom { bytes, limit }),
        _ => Ok(()),
    }
}

/// Fresh memory of the registered memory's shape.
pub(in crate::client) fn allocate(
    registration: &RegisteredShard,
    limit: Option<u64>,
) -> Result<Target, Error> {
    check_room(registration, limit)?;
    let regions = registration.regions.iter().map(|region| Region::allocate(region.len()));
    let regions = regions
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| Error::io("allocate memory for staging", error))?;
    let filling = Some(Arc::new(Filling::new(&regions)));
    let staged = Arc::new(registration.within(regions));
    Ok(Target {
        registration: staged,
        filling,
        live: None,
        serving: None,
        moves_all: false,
        entering: None,
    })
}

/// Copies the slices, and no other byte, from staged into registered memory. `None` if cancelled;
/// `stop_read` waits for `memory` after it cancels.
pub(in crate::client) fn install(
    staged: &RegisteredShard,
    registration: &RegisteredShard,
    memory: &Mutex<()>,
    cancel: &AtomicBool,
) -> Option<Installed> {
    let started = Instant::now();
    let _memory = memory.lock().expect("no panic while held");
    let mut step = vec![0; STEP];
    for (region, offset, len) in registration.ranges() {
        let (from, to) = (&staged.regions[region], &registration.regions[region]);
        for at in (offset..offset + len).step_by(STEP) {
            if cancel.load(Ordering::Acquire) {
                return None;
            }
            let bytes = &mut step[..STEP.min(offset + len - at)];
            from.read_at(at, bytes).expect("a layout lies within its regions");
            to.write_at(at, bytes).expect("checked to be writable before the call");
        }
    }
    Some(Installed { bytes: registration.bytes(), seconds: started.elapsed().as_secs_f64() })
}

#[cfg(test)]
mod tests {
    use weightcast_plan::{DType, LayoutBuilder, Part};

    use super::*;

    /// Two buffers with padding behind their slices, all of it filled with one byte.
    fn registration(byte: u8) -> RegisteredShard {
        let mut builder = LayoutBuilder::new();
        let mut regions = Vec::new();
        for (name, held, bytes) in [("a", 2 * STEP + 5, 2 * STEP + 9), ("b", 7, 100)] {
            let part = Part::new(name).shape([held as u64]);
            builder.add(name, DType::U8, &[bytes as u64], vec![part], 0).pad();
            regions.push(Region::from_bytes(&vec![byte; bytes]).unwrap());
        }
        RegisteredShard::new(&[Arc::new(builder.build().unwrap())], 0, regions).unwrap()
    }

    #[test]
    fn a_staged_update_takes_as_much_as_the_buffers() {
        let registration = registration(0);
        let bytes = registration.regions.iter().map(|region| region.len() as u64).sum::<u64>();
        assert!(bytes > registration.bytes());
        for limit in [None, Some(bytes)] {
            let target = allocate(&registration, limit).unwrap();
            let lens =
                |of: &RegisteredShard| of.regions.iter().map(Region::len).collect::<Vec<_>>();
            assert_eq!(lens(&target.registration), lens(&registration));
        }
        let limit = bytes - 1;
        match allocate(&registration, Some(limit)).err().expect("there is no room") {
            Error::NoRoom { bytes: needed, limit: told } => {
                assert_eq!((needed, told), (bytes, limit));
            }
            other => panic!("{other}"),
        }
    }

    #[test]
    fn the_slices_are_copied_and_the_padding_is_left() {
        let (staged, registration) = (registration(1), registration(2));
        let go_on = AtomicBool::new(false);
        let installed = install(&staged, &registration, &Mutex::new(()), &go_on).unwrap();
        assert_eq!(installed.bytes, registration.bytes());
        for (region, held) in registration.regions.iter().zip([2 * STEP + 5, 7]) {
            let (slice, padding) = (vec![1; held], vec![2; region.len() - held]);
            assert!(region.to_vec() == [slice, padding].concat());
        }
    }

    #[test]
    fn what_is_cancelled_puts_nothing_in_place() {
        let (staged, registration) = (registration(1), registration(2));
        let cancelled = AtomicBool::new(true);
        assert!(install(&staged, &registration, &Mutex::new(()), &cancelled).is_none());
        assert!(registration.regions[0].to_vec().iter().all(|byte| *byte == 2));
    }
}
