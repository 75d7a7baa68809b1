//! The course of a scene: all that server and sessions say in it, word for word, as one number. Scenes whose
//! numbers are written down (`scenes.txt`) have to go as they went, so a change that is meant to change nothing
//! shows where it does. The number says that something is said otherwise, not that it is wrong.
//!
//! `WEIGHTCAST_SCENE=1 cargo test NAME -- --nocapture` prints what is said: compare it with the commit before. If
//! all of the difference is meant, `make pin` writes the new numbers down.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::LazyLock;

/// A test that plays more scenes than so many draws them: the first ones will do.
const SCENES: u32 = 40;

thread_local! {
    static PLAYED: Cell<u32> = const { Cell::new(0) };
}

static WRITTEN: LazyLock<BTreeMap<&str, &str>> = LazyLock::new(|| {
    include_str!("scenes.txt").lines().filter_map(|line| line.rsplit_once(' ')).collect()
});

/// What has been said so far.
#[derive(Default)]
pub(crate) struct Course(u64);

impl Course {
    /// Something is said.
    pub(crate) fn note(&mut self, what: &impl Debug) {
        let text = format!("{what:?}\n");
        if asked("WEIGHTCAST_SCENE").is_some() {
            eprint!("{text}");
        }
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    /// The scene is over: it went as it is written down, if it is.
    ///
    /// # Panics
    /// If it went otherwise.
    pub(crate) fn end(&self) {
        let thread = std::thread::current();
        let scene = PLAYED.replace(PLAYED.get() + 1);
        let Some(test) = thread.name().filter(|_| scene < SCENES && !std::thread::panicking())
        else {
            return;
        };
        let name = format!("{test} {scene}");
        let number = format!("{:016x}", self.0);
        if let Some(file) = asked("WEIGHTCAST_PIN") {
            let file = std::fs::OpenOptions::new().create(true).append(true).open(file);
            let line = format!("{name} {number}\n");
            return file
                .and_then(|mut file| file.write_all(line.as_bytes()))
                .expect("a file to pin to");
        }
        if let Some(written) = WRITTEN.get(name.as_str()) {
            assert_eq!(*written, number, "scene {name} goes another way: see tests/pinned/mod.rs");
        }
    }
}

fn asked(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}
