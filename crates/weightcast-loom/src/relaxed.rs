//! Units whose count orders nothing.

mod atomic {
    use loom::sync::atomic;
    pub(super) use loom::sync::atomic::Ordering;

    #[derive(Debug)]
    pub(crate) struct AtomicU64(atomic::AtomicU64);

    impl AtomicU64 {
        pub(super) fn new(value: u64) -> Self {
            Self(atomic::AtomicU64::new(value))
        }

        pub(super) fn load(&self, _: Ordering) -> u64 {
            self.0.load(Ordering::Relaxed)
        }

        pub(super) fn store(&self, value: u64, _: Ordering) {
            self.0.store(value, Ordering::Relaxed);
        }

        pub(super) fn fetch_sub(&self, value: u64, _: Ordering) -> u64 {
            self.0.fetch_sub(value, Ordering::Relaxed)
        }
    }
}

#[path = "../../weightcast-transport/src/piece/unit.rs"]
pub(crate) mod unit;
