//! Memory beside the registered one, for staged updates: of the same shape, filled while the old
//! version is held and served, and then copied into place.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use weightcast_transport::{Filling, Region};

use super::reading::Target;
use super::registration::Registration;
use super::shared::Shared;
use crate::Error;

/// Bytes copied before it is asked again whether to go on. Stays in the cache between its two moves.
const STEP: usize = 1 << 18;

/// What was copied into place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Installed {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
}

/// Whether a staged update fits.
pub(super) fn check_room(registration: &Registration, limit: Option<u64>) -> Result<(), Error> {
    let bytes = registration.regions.iter().map(|region| region.len() as u64).sum();
    match limit {
        Some(limit) if bytes > limit => Err(Error::NoRoom { bytes, limit }),
        _ => Ok(()),
    }
}

/// Fresh memory of the same shape.
pub(super) fn allocate(registration: &Registration, limit: Option<u64>) -> Result<Target, Error> {
    check_room(registration, limit)?;
    let fresh = |region: &Region| Region::allocate(region.len());
    let regions = registration.regions.iter().map(fresh).collect::<Result<Vec<_>, _>>();
    let regions = regions.map_err(|error| Error::io("allocate memory for staging", error))?;
    let filling = Some(Arc::new(Filling::new(&regions)));
    Ok(Target { registration: Arc::new(registration.within(regions)), filling })
}

/// Copies the slices, and no other byte, of one memory into the other. `None` if it was cancelled:
/// whoever does that waits for the lock.
pub(super) fn install(
    staged: &Registration,
    registration: &Registration,
    shared: &Shared,
    cancel: &AtomicBool,
) -> Option<Installed> {
    let started = Instant::now();
    let _memory = shared.memory.lock().expect("no panic while held");
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
