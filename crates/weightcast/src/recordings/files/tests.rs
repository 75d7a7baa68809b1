use std::os::unix::fs::MetadataExt;

use weightcast_protocol::Time;
use weightcast_protocol::limits::SERVER_REEL;
use weightcast_protocol::recording::RecordedMachine;
use weightcast_protocol::server::{Server, ServerConfig, ServerInput};

use super::*;

fn recording(cause: RecordingCause) -> Recording {
    let mut server = RecordedMachine::new(Server::new(ServerConfig::default()), SERVER_REEL);
    server.take(Time(1), ServerInput::Timeout);
    while server.poll_output().is_some() {}
    server.recording(cause, 7).expect("something has happened")
}

fn fresh() -> PathBuf {
    let token = crate::auth::new_token().unwrap();
    std::env::temp_dir().join(format!("wc-recordings-{}", token.expose()[..12].escape_ascii()))
}

fn names(directory: &Path) -> Vec<String> {
    let listed = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        listed.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn a_recording_is_written_whole_for_this_user_alone() {
    let directory = fresh();
    let files = RecordingFiles::within(Some(&directory)).unwrap();
    assert!(!directory.exists(), "nothing is made before one is written");
    let recording = recording(RecordingCause::Panic);
    let WrittenRecording { path, events } = files.write(&recording).unwrap();
    assert_eq!(events, 1);
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    assert_eq!(Recording::decode(&fs::read(&path).unwrap()), Ok(recording));
    let name = path.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with("server-panic-") && name.ends_with(".recording"), "{name}");
    assert_eq!(names(&directory), [name], "and no draft stays");
    fs::remove_dir_all(directory).unwrap();
}

/// As when the shards of one process fail together: within a millisecond, and none replaces another.
#[test]
fn recordings_of_one_moment_all_stay() {
    let directory = fresh();
    let files = RecordingFiles::within(Some(&directory)).unwrap();
    let recording = recording(RecordingCause::Asked);
    let paths: Vec<_> = std::thread::scope(|scope| {
        let write = || files.write(&recording).unwrap().path;
        let writers: Vec<_> = (0..KEPT_RECORDINGS).map(|_| scope.spawn(write)).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    assert!(paths.iter().all(|path| path.exists()));
    assert_eq!(names(&directory).len(), KEPT_RECORDINGS);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn the_newest_of_each_cause_stay() {
    let directory = fresh();
    fs::create_dir_all(&directory).unwrap();
    let old = |cause: &str, number: usize| format!("server-{cause}-{number:013}-1.recording");
    for number in 0..KEPT_RECORDINGS {
        for cause in ["asked", "panic"] {
            fs::write(directory.join(old(cause, number)), "old").unwrap();
        }
    }
    fs::write(directory.join("server-asked-notes.txt"), "mine").unwrap();
    let files = RecordingFiles::within(Some(&directory)).unwrap();
    files.write(&recording(RecordingCause::Asked)).unwrap();
    let left = names(&directory);
    let count = |start: &str| left.iter().filter(|name| name.starts_with(start)).count();
    assert!(!left.contains(&old("asked", 0)) && left.contains(&old("asked", 1)), "{left:?}");
    assert_eq!(count("server-asked-0") + count("server-asked-1"), KEPT_RECORDINGS, "{left:?}");
    assert_eq!(count("server-panic-"), KEPT_RECORDINGS, "of another cause");
    assert!(left.contains(&"server-asked-notes.txt".to_owned()), "no recording");
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn together_they_have_so_many_bytes_and_the_newest_stays_whatever_it_has() {
    let directory = fresh();
    fs::create_dir_all(&directory).unwrap();
    let sized = |number: usize, bytes: u64| {
        let path = directory.join(format!("server-asked-{number:013}-1.recording"));
        fs::File::create(path).unwrap().set_len(bytes).unwrap();
    };
    for (number, bytes) in [(1, 1), (2, KEPT_RECORDINGS_BYTES - 1), (3, 1)] {
        sized(number, bytes);
    }
    make_room(&directory, "server-asked-");
    assert_eq!(names(&directory).len(), 2, "to the last byte");
    sized(4, KEPT_RECORDINGS_BYTES + 1);
    make_room(&directory, "server-asked-");
    assert_eq!(names(&directory), ["server-asked-0000000000004-1.recording"]);
    fs::remove_dir_all(directory).unwrap();
}

/// A writer that was killed leaves its draft; one that writes now is left alone.
#[test]
fn drafts_go_an_hour_later() {
    let directory = fresh();
    fs::create_dir_all(&directory).unwrap();
    let draft = |name: &str, age: Duration| {
        let file = fs::File::create(directory.join(name)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    };
    draft(".server-asked-1.draft", DRAFT_AGE + Duration::from_secs(60));
    draft(".server-asked-2.draft", DRAFT_AGE - Duration::from_secs(60));
    draft(".mine.draft", 2 * DRAFT_AGE);
    make_room(&directory, "server-asked-");
    assert_eq!(names(&directory), [".mine.draft", ".server-asked-2.draft"]);
    fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = fresh();
    fs::write(&file, "a file").unwrap();
    let files = RecordingFiles::within(Some(&file.join("below"))).unwrap();
    let error = files.write(&recording(RecordingCause::Asked)).unwrap_err().to_string();
    assert!(error.contains(&*file.to_string_lossy()), "{error}");
    fs::remove_file(file).unwrap();
}
