//! A reader copies memory while its owner fences it and writes the next version.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

const ID: u64 = 7;

macro_rules! what_was_served_is_old {
    ($word:path) => {
        loom::model(|| {
            let word = Arc::new(<$word>::new(ID));
            let memory = Arc::new([AtomicU64::new(1), AtomicU64::new(1)]);
            let owner = {
                let (word, memory) = (Arc::clone(&word), Arc::clone(&memory));
                thread::spawn(move || {
                    word.fence();
                    memory.iter().for_each(|chunk| chunk.store(2, Relaxed));
                })
            };
            // As the data port does: bytes first, then a look at the word.
            let copied = [memory[0].load(Relaxed), memory[1].load(Relaxed)];
            if word.is(ID) {
                assert_eq!(copied, [1, 1], "torn");
            }
            owner.join().expect("it only writes");
            assert!(!word.is(ID));
        });
    };
}

#[test]
fn what_was_copied_before_the_fence_counts_is_whole() {
    what_was_served_is_old!(super::sound::fence_word::FenceWord);
}

#[test]
#[should_panic(expected = "torn")]
fn without_fences_a_torn_copy_counts() {
    what_was_served_is_old!(super::unfenced::fence_word::FenceWord);
}
