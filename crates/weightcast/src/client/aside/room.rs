//! The memory that a handle's offloads and seeds may take together.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use weightcast_transport::Region;

use crate::client::memory::registration::RegisteredShard;
use crate::error::Error;

/// The budget for memory beside the registered memory.
#[derive(Debug)]
pub(in crate::client) struct Room {
    limit: Option<u64>,
    used: Mutex<u64>,
    freed: Condvar,
}

/// A part of a room, taken until this is dropped.
pub(in crate::client) struct Share {
    room: Arc<Room>,
    bytes: u64,
}

impl Drop for Share {
    fn drop(&mut self) {
        *self.room.used.lock().expect("no panic while held") -= self.bytes;
        self.room.freed.notify_all();
    }
}

impl Room {
    pub(in crate::client) fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self { limit, used: Mutex::default(), freed: Condvar::new() })
    }

    /// Takes as many bytes as are registered; waits up to `patience` for others to let go of
    /// theirs.
    ///
    /// # Errors
    /// There is no room.
    pub(in crate::client) fn take(
        self: &Arc<Self>,
        registration: &RegisteredShard,
        patience: Duration,
    ) -> Result<Share, Error> {
        let bytes = registration.regions.iter().map(|region| region.len() as u64).sum();
        let used = self.used.lock().expect("no panic while held");
        let waited =
            self.freed.wait_timeout_while(used, patience, |used| self.is_beyond(*used + bytes));
        let (mut used, _) = waited.expect("no panic while held");
        if self.is_beyond(*used + bytes) {
            let limit = self.limit.unwrap_or_default();
            return Err(Error::misuse(format!(
                "no room for {bytes} bytes: offload_bytes is {limit}, {used} are in use"
            )));
        }
        *used += bytes;
        drop(used);
        Ok(Share { room: Arc::clone(self), bytes })
    }

    /// Whether so many bytes exceed the limit.
    fn is_beyond(&self, bytes: u64) -> bool {
        self.limit.is_some_and(|limit| bytes > limit)
    }
}

/// Fresh memory as long as a registered region.
///
/// # Errors
/// There is no memory.
pub(in crate::client) fn allocate(like: &Region) -> Result<Region, Error> {
    Region::allocate(like.len()).map_err(|error| Error::io("allocate memory for a copy", error))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use weightcast_plan::{DType, Entry, Layout, LayoutBuilder, Part, Slice, Tensor};

    use super::*;

    const BYTES: u64 = 64;
    const LONG: Duration = Duration::from_secs(20);

    fn registration() -> RegisteredShard {
        let mut builder = LayoutBuilder::new();
        builder.add("w", DType::U8, &[BYTES], vec![Part::new("w").shape([BYTES])], 0);
        let region = Region::allocate(BYTES as usize).unwrap();
        RegisteredShard::new(&[Arc::new(builder.build().unwrap())], 0, vec![region]).unwrap()
    }

    #[test]
    fn as_much_is_taken_as_there_is_and_no_more() {
        let registration = registration();
        let room = Room::new(Some(2 * BYTES));
        let take = || room.take(&registration, Duration::ZERO);
        let (first, _second) = (take().unwrap(), take().unwrap());
        let refused = take().err().expect("it is full").to_string();
        for part in ["no room for 64 bytes", "offload_bytes is 128", "128 are in use"] {
            assert!(refused.contains(part), "{part} in {refused}");
        }
        drop(first);
        let _third = take().unwrap();
        assert!(take().is_err());
        assert!(Room::new(Some(BYTES - 1)).take(&registration, Duration::ZERO).is_err());
        let unlimited = Room::new(None);
        let _many: Vec<_> =
            (0..9).map(|_| unlimited.take(&registration, Duration::ZERO).unwrap()).collect();
    }

    /// A copy is as long as the registered region, whatever of that lies between tensors.
    #[test]
    fn what_is_allocated_counts_and_not_what_tensors_need() {
        let tensor = Tensor::new("w", DType::U8, [BYTES]).unwrap();
        let slice = Slice::full(&[BYTES]);
        let entry = Entry { tensor: 0, slice, buffer: 0, offset: 8, strides: vec![1] };
        let layout = Layout::new(vec![BYTES + 16], vec![tensor], vec![entry]).unwrap();
        let region = Region::allocate(BYTES as usize + 16).unwrap();
        let padded = RegisteredShard::new(&[Arc::new(layout)], 0, vec![region]).unwrap();
        let take = |limit| Room::new(Some(limit)).take(&padded, Duration::ZERO).map(drop);
        assert!(take(BYTES + 15).is_err() && take(BYTES + 16).is_ok());
    }

    #[test]
    fn whoever_waits_has_what_another_lets_go_of() {
        let registration = registration();
        let room = Room::new(Some(BYTES));
        let first = room.take(&registration, Duration::ZERO).unwrap();
        let (asks, asked) = mpsc::channel();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                asks.send(()).unwrap();
                room.take(&registration, LONG).map(drop)
            });
            asked.recv().unwrap();
            drop(first);
            next.join().unwrap().expect("there is room");
        });
    }
}
