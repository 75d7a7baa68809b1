//! One export: regions, and the fence word that says whether they are served.
//!
//! The fence word holds the export's id while the export is served, and zero afterwards. Ids are random
//! and never used twice. If the word still holds the id after a copy, all bytes copied before were
//! served. A reader in another process reads the word itself; the data port reads the word after it
//! has handed bytes to the kernel, and only then answers "ok".

use crate::base::holds::{HoldPoint, Holds};
use crate::base::id::ExportId;
use crate::base::limits::TICK;
use crate::base::lock::lock;
use crate::export::fence_word::FenceWord;
use crate::export::lending::Lending;
use crate::export::notes::Notes;
use crate::memory::region::Region;
use crate::piece::filling::Filling;
use crate::wire::socket::Socket;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// One export. Its address is stable behind the `Arc`, so its word can be read from outside.
pub(crate) struct Export {
    word: FenceWord,
    id: ExportId,
    generation: u64,
    regions: Arc<[Region]>,
    /// Whether readers of this host can map them.
    lending: Lending,
    /// What the publisher tells readers about the export.
    pub(crate) notes: Notes,
    /// Which parts may be read already, if the memory is still being filled.
    filling: Option<Arc<Filling>>,
    serving: Mutex<Vec<Arc<Socket>>>,
    idle: Condvar,
    /// Where a test stops a read of the export.
    pub(crate) holds: OnceLock<Holds>,
}

impl Export {
    pub(crate) fn new(id: ExportId, generation: u64, regions: impl Into<Arc<[Region]>>) -> Self {
        let regions = regions.into();
        let word = FenceWord::new(id.0);
        let (serving, idle) = (Mutex::default(), Condvar::new());
        let (notes, holds) = (Notes::default(), OnceLock::new());
        let (lending, filling) = (Lending::of(id, &regions), None);
        Self { word, id, generation, regions, lending, notes, filling, serving, idle, holds }
    }

    /// The same, of memory that is being filled.
    pub(crate) fn filling(mut self, filling: Arc<Filling>) -> Self {
        self.filling = Some(filling);
        self
    }

    pub(crate) fn id(&self) -> ExportId {
        self.id
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Set if the memory was still being filled when it was exposed.
    pub(crate) fn progress(&self) -> Option<&Filling> {
        self.filling.as_deref()
    }

    /// Waits until these ranges may be read, looking each [`TICK`] whether the asker still wants
    /// them. False if the export was fenced or the asker gave up.
    pub(crate) fn wait_final(
        &self,
        ranges: impl Iterator<Item = (u32, u64, u64)>,
        wanted: impl Fn() -> bool,
    ) -> bool {
        let Some(filling) = &self.filling else { return true };
        for (region, offset, len) in ranges {
            let units = filling.units().touched(region, offset, len);
            while !filling.is_final(units.clone()) {
                if !self.is_served() || !wanted() {
                    return false;
                }
                filling.wait(units.clone(), TICK);
            }
        }
        true
    }

    /// Waits until more than so many units are final, or all. False if that was not wanted any more, or the
    /// export was fenced.
    pub(crate) fn wait_news(&self, known: u64, wanted: impl Fn() -> bool) -> bool {
        let Some(filling) = &self.filling else { return true };
        while !filling.has_news(known) {
            if !self.is_served() || !wanted() {
                return false;
            }
            filling.wait_for(TICK, || filling.has_news(known));
        }
        true
    }

    /// Where the fence word lies.
    pub(crate) fn word_address(&self) -> u64 {
        self.word.0.as_ptr().expose_provenance() as u64
    }

    /// True if all bytes read from the regions before this call were served.
    pub(crate) fn is_served(&self) -> bool {
        self.word.is(self.id.0)
    }

    pub(crate) fn lending(&self) -> &Lending {
        &self.lending
    }

    pub(crate) fn fence(&self) {
        self.lending.fence();
        self.word.fence();
        if let Some(filling) = &self.filling {
            filling.wake();
        }
        self.notes.wake();
    }

    /// A read of it has come to a point.
    pub(crate) fn stop_at(&self, point: HoldPoint) {
        if let Some(holds) = self.holds.get() {
            holds.at(point);
        }
    }

    /// Notes that `socket` sends from the regions until the guard is dropped.
    pub(crate) fn serve<'a>(&'a self, socket: &'a Arc<Socket>) -> Serving<'a> {
        lock(&self.serving).push(Arc::clone(socket));
        Serving { export: self, socket }
    }

    /// Waits until no connection serves from the export. False if the deadline passed first.
    pub(crate) fn wait_idle(&self, deadline: Duration) -> bool {
        let until = Instant::now().checked_add(deadline);
        let mut serving = lock(&self.serving);
        while !serving.is_empty() {
            let left = match until {
                Some(until) => until.saturating_duration_since(Instant::now()),
                None => Duration::MAX,
            };
            if left.is_zero() {
                return false;
            }
            let woken = self.idle.wait_timeout(serving, left);
            serving = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Ends the connections that still serve from the export.
    pub(crate) fn cut(&self) {
        lock(&self.serving).iter().for_each(|socket| socket.shut_down());
    }
}

/// While it lives, a connection may be sending from the export's regions.
pub(crate) struct Serving<'a> {
    export: &'a Export,
    socket: &'a Arc<Socket>,
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        let mut serving = lock(&self.export.serving);
        if let Some(place) = serving.iter().position(|socket| Arc::ptr_eq(socket, self.socket)) {
            serving.swap_remove(place);
        }
        self.export.idle.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::MIN_UNIT_BYTES;
    use std::cell::Cell;
    use std::os::unix::net::UnixStream;

    fn socket() -> Arc<Socket> {
        Arc::new(Socket::Local(UnixStream::pair().unwrap().0))
    }

    #[test]
    fn each_who_sends_is_counted_until_it_has_ended() {
        let export = Export::new(ExportId(5), 1, Vec::new());
        let idle = || export.wait_idle(Duration::ZERO);
        assert!(idle() && export.wait_idle(Duration::MAX));
        let pairs = [(); 2].map(|()| UnixStream::pair().unwrap());
        let [(one, _there), (other, _far)] = pairs.map(|(a, b)| (Arc::new(Socket::Local(a)), b));
        assert!(one.is_connected() && other.is_connected());
        let sending = [export.serve(&one), export.serve(&other), export.serve(&one)];
        assert!(!idle());
        let of = |socket: &Arc<Socket>| {
            lock(&export.serving).iter().filter(|sending| Arc::ptr_eq(sending, socket)).count()
        };
        assert_eq!((of(&one), of(&other)), (2, 1));
        let [first, second, third] = sending;
        drop(first);
        assert_eq!((of(&one), of(&other), idle()), (1, 1, false));
        export.cut();
        assert!(!one.is_connected() && !other.is_connected());
        drop(second);
        assert_eq!((of(&one), of(&other), idle()), (1, 0, false));
        drop(third);
        assert!(idle());
    }

    #[test]
    fn a_wait_ends_with_the_last_who_sends() {
        let export = Export::new(ExportId(5), 1, Vec::new());
        let one = socket();
        std::thread::scope(|scope| {
            let sending = export.serve(&one);
            let waiting = scope.spawn(|| export.wait_idle(Duration::from_secs(60)));
            drop(sending);
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn the_word_is_the_id_until_the_fence() {
        let export = Export::new(ExportId(5), 3, Vec::new());
        let word = std::ptr::with_exposed_provenance::<u64>(export.word_address() as usize);
        // SAFETY: the word lives as long as the export, and nobody writes to it meanwhile.
        let read = || unsafe { word.read_volatile() };
        assert_eq!(
            (read(), export.is_served(), export.id(), export.generation()),
            (5, true, ExportId(5), 3)
        );
        export.fence();
        assert_eq!((read(), export.is_served()), (0, false));
    }

    /// Two regions of two units each, of which the second and the third are final.
    #[test]
    fn a_wait_is_for_what_was_asked_and_ends_with_who_asks() {
        const UNIT: u64 = MIN_UNIT_BYTES;
        let region = || Region::allocate(2 * UNIT as usize).unwrap();
        let regions = vec![region(), region()];
        let filling = Arc::new(Filling::new(&regions));
        let all = [0, 1].map(|r| crate::StridedCopy::contiguous(0, 0, r, 0, 2 * UNIT));
        filling.begin([&all[..]].into_iter());
        filling.arrived(0, UNIT, UNIT);
        filling.arrived(1, 0, UNIT);
        let export = Export::new(ExportId(5), 1, regions).filling(Arc::clone(&filling));
        let looks = Cell::new(0);
        let wait = |ranges: &[(u32, u64, u64)], until| {
            looks.set(0);
            let wanted = || {
                looks.set(looks.get() + 1);
                looks.get() <= until
            };
            (export.wait_final(ranges.iter().copied(), wanted), looks.get())
        };
        assert_eq!(wait(&[], 0), (true, 0));
        assert_eq!(wait(&[(0, UNIT, UNIT), (1, 0, UNIT), (0, 5, 0)], 0), (true, 0));
        assert_eq!(wait(&[(0, UNIT - 1, 1)], 0), (false, 1));
        assert_eq!(wait(&[(0, UNIT - 1, 2)], 0), (false, 1));
        assert_eq!(wait(&[(1, UNIT - 1, 1)], 0), (true, 0));
        assert_eq!(wait(&[(1, UNIT - 1, 2)], 1), (false, 2));
        assert_eq!(wait(&[(1, 0, 1), (1, UNIT, 1)], 0), (false, 1), "the second too");
        // It arrives while it is waited for.
        let arrives = || {
            filling.arrived(0, 0, UNIT);
            true
        };
        assert!(export.wait_final([(0, 0, UNIT)].into_iter(), arrives));
        export.fence();
        assert_eq!(wait(&[(0, 0, 2 * UNIT)], 0), (true, 0), "what is there is there");
        assert_eq!(wait(&[(1, UNIT, 1)], u64::MAX), (false, 0), "nobody brings it any more");
        assert!(export.wait_news(2, || unreachable!("there are three")));
        assert!(!export.wait_news(3, || unreachable!("nobody brings more")));
        let whole = Export::new(ExportId(6), 1, Vec::new());
        assert!(whole.wait_final([(9, 9, 9)].into_iter(), || false), "it stands");
    }

    #[test]
    fn a_read_stops_where_a_test_says() {
        let export = Export::new(ExportId(5), 1, Vec::new());
        export.stop_at(HoldPoint::Taking);
        let passed = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&passed);
        let holds = Holds::new(move |point| lock(&seen).push(point));
        assert!(holds.is_set() && !Holds::default().is_set());
        export.holds.set(holds).unwrap();
        export.stop_at(HoldPoint::Judging);
        export.stop_at(HoldPoint::Taking);
        assert_eq!(*lock(&passed), [HoldPoint::Judging, HoldPoint::Taking]);
    }

    /// As long as it takes: each waits already, or sees that it need not.
    #[test]
    fn an_endless_wait_ends_with_the_last_who_sends_only() {
        let export = Export::new(ExportId(5), 1, Vec::new());
        let one = socket();
        for _ in 0..50 {
            let sending = export.serve(&one);
            let (comes, coming) = std::sync::mpsc::channel();
            std::thread::scope(|scope| {
                let export = &export;
                let waiting = scope.spawn(move || {
                    comes.send(()).unwrap();
                    export.wait_idle(Duration::MAX)
                });
                coming.recv().unwrap();
                (0..100).for_each(|_| std::thread::yield_now());
                drop(sending);
                assert!(waiting.join().unwrap());
            });
        }
    }
}
