//! Replays the corpora: what was found once stays mended.

use std::fs;
use std::path::Path;

use weightcast_fuzz::TARGETS;

#[test]
fn corpora_are_taken() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        let directory = corpora.join(name);
        let files = fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory:?}: {e}"));
        let mut paths: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        paths.sort();
        assert!(!paths.is_empty(), "{directory:?} is empty");
        for path in paths {
            println!("{}", path.display()); // shown when one panics
            target(&fs::read(&path).unwrap());
        }
    }
}

#[test]
fn bytes_cut_short_or_changed_are_taken() {
    let corpora = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (name, target) in TARGETS {
        for file in fs::read_dir(corpora.join(name)).unwrap().take(20) {
            let bytes = fs::read(file.unwrap().path()).unwrap();
            for at in (0..bytes.len().min(2_000)).step_by(1 + bytes.len() / 40) {
                target(&bytes[..at]);
                let mut changed = bytes.clone();
                changed[at] ^= 1 << (at % 8);
                target(&changed);
            }
        }
    }
}
