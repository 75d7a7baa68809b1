//! Which step follows which.

use crate::engine_update::means::InstallMeans;
use crate::engine_update::step::UpdateStep::{self, *};

const PREFETCHED: &[UpdateStep] =
    &[Negotiate, Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume];
const STAGED: &[UpdateStep] =
    &[Negotiate, Pause, Fetch, Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume];
const IN_PLACE: &[UpdateStep] =
    &[Negotiate, Pause, Begin, Fetch, PostProcess, Verify, Invalidate, Stamp, Resume];

/// The steps of an update that goes well.
pub(super) const fn course(means: InstallMeans, prefetch: bool) -> &'static [UpdateStep] {
    match (means, prefetch) {
        (InstallMeans::Staged, true) => PREFETCHED,
        (InstallMeans::Staged, false) => STAGED,
        (InstallMeans::InPlace, _) => IN_PLACE,
    }
}

/// The step after this one.
pub(super) fn after(course: &[UpdateStep], step: UpdateStep) -> Option<UpdateStep> {
    let at = course.iter().position(|one| *one == step)?;
    course.get(at + 1).copied()
}

/// Whether a step changes the live parameters. In place, `Begin` counts: from then on bytes may come in.
pub(super) fn touches(means: InstallMeans, step: UpdateStep) -> bool {
    match means {
        InstallMeans::Staged => matches!(step, Install | PostProcess),
        InstallMeans::InPlace => matches!(step, Begin | Fetch | PostProcess),
    }
}
