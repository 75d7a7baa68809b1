//! The progress that a call that fills the memory tells its caller.

use std::cell::Cell;
use std::sync::{Arc, Mutex};

use weightcast_transport::Gauge;

use crate::client::reading::pace::LatestRead;

/// Told, on the thread of a call and a few times a second, how many bytes of the read have arrived and
/// how many the read has in all. Says whether the call goes on: if not, the call ends with
/// [`Error::Interrupted`](crate::Error::Interrupted).
pub type ReadWatch<'a> = &'a (dyn Fn(u64, u64) -> bool + Sync);

/// The watch of a call that is not watched.
pub(in crate::client) const UNWATCHED: ReadWatch<'static> = &|_, _| true;

/// The watch of a call: tells the progress of reads that began after the call.
pub(super) struct WatchedCall<'a> {
    watch: ReadWatch<'a>,
    latest: &'a Mutex<LatestRead>,
    /// The read that was the latest when the call began.
    before: Arc<Gauge>,
    /// The numbers that were told last.
    told: Cell<Option<(u64, u64)>>,
}

impl<'a> WatchedCall<'a> {
    /// Begins with the call.
    pub(super) fn begin(watch: ReadWatch<'a>, latest: &'a Mutex<LatestRead>) -> Self {
        let before = latest.lock().expect("no panic while held").gauge();
        Self { watch, latest, before, told: Cell::default() }
    }

    /// Tells numbers that have changed. Returns whether the call goes on.
    pub(super) fn tell(&self) -> bool {
        let reading = {
            let latest = self.latest.lock().expect("no panic while held");
            latest.look().filter(|_| !latest.is_of(&self.before))
        };
        let Some(reading) = reading else { return true };
        let now = (reading.arrived, reading.arrived + reading.left);
        self.told.replace(Some(now)) == Some(now) || (self.watch)(now.0, now.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A watch is told the numbers of the latest read at each of these points.
    #[test]
    fn a_call_is_told_of_its_own_reads_and_of_each_number_once() {
        let latest = Mutex::new(LatestRead::at(9, 0));
        let told = Mutex::new(Vec::new());
        let note = |arrived, total| {
            told.lock().unwrap().push((arrived, total));
            arrived < 8
        };
        let watch = WatchedCall::begin(&note, &latest);
        assert!(watch.tell(), "of the read before the call");
        for (arrived, left, goes_on) in [(0, 8, true), (3, 5, true), (3, 5, true), (8, 0, false)] {
            *latest.lock().unwrap() = LatestRead::at(arrived, left);
            assert_eq!(watch.tell(), goes_on, "{arrived}");
        }
        assert!(watch.tell(), "it was told already");
        assert_eq!(*told.lock().unwrap(), [(0, 8), (3, 8), (8, 8)]);
        *latest.lock().unwrap() = LatestRead::default();
        assert!(watch.tell(), "no bytes have moved");
        assert_eq!(told.lock().unwrap().len(), 3);
    }
}
