//! `plot`, as a user runs it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use roxmltree::Document;

const FANOUT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/fanout.json");

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = format!("weightcast-plot-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        Self(folder)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let file = self.0.join(name);
        std::fs::write(&file, text).expect("a file");
        file
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn plot(file: &Path, output: Option<&Path>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast"));
    command.arg("plot").arg(file);
    if let Some(output) = output {
        command.arg("--output").arg(output);
    }
    command.output().expect("it runs")
}

fn said(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// The texts of an SVG picture.
fn texts(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("XML");
    assert!(document.root_element().has_tag_name(("http://www.w3.org/2000/svg", "svg")));
    let texts = document.descendants().filter(|node| node.tag_name().name() == "text");
    texts.filter_map(|node| node.text().map(str::to_owned)).collect()
}

#[test]
fn the_picture_goes_beside_the_file_or_where_it_is_wanted() {
    let folder = Folder::new("where");
    let file = folder.file("run.json", std::fs::read(FANOUT).expect("a result"));
    let beside = folder.0.join("run.svg");
    let elsewhere = folder.0.join("other.picture");
    for (output, wanted) in [(None, &beside), (Some(&*elsewhere), &elsewhere)] {
        let ran = plot(&file, output);
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(said(&ran), (format!("picture: {}\n", wanted.display()), String::new()));
        let svg = std::fs::read_to_string(wanted).expect("a picture");
        let texts = texts(&svg);
        for text in ["Total stall, 2 shards", "readers", "seconds", "16", "weightcast", "ideal"] {
            assert!(texts.iter().any(|found| found == text), "{text} is not in {texts:?}");
        }
        // Of the file: 16 readers of one shard, weightcast and the naive way.
        for tip in [
            "weightcast, readers 16: 23.5 seconds",
            "all read from the trainer, readers 16: 304 seconds",
        ] {
            assert!(svg.contains(tip), "{tip}");
        }
    }
    let printed = plot(&file, Some("-".as_ref()));
    assert_eq!(printed.stdout, std::fs::read(&beside).expect("a picture"));
    assert!(printed.status.success() && printed.stderr.is_empty(), "{printed:?}");
}

#[test]
fn a_file_that_cannot_be_drawn_is_an_error_with_its_name() {
    let folder = Folder::new("bad");
    let status = folder.file("status.json", r#"{"sessions": 3, "models": []}"#);
    let broken = folder.file("broken.json", "{\"weightcast\": \"demo/1\", \"runs\": [");
    let bytes = folder.file("bytes.json", [0xff, 0xfe, 0x00]);
    let missing = folder.0.join("missing.json");
    for (file, wanted) in [
        (&status, "no kind of file that can be drawn: these are what `weightcast demo"),
        (&status, "found at its top models, sessions"),
        (&broken, "no JSON"),
        (&bytes, "UTF-8"),
        (&missing, "No such file"),
        (&folder.0, "Is a directory"),
    ] {
        let ran = plot(file, None);
        let (stdout, stderr) = said(&ran);
        assert_eq!((ran.status.code(), &*stdout), (Some(1), ""), "{ran:?}");
        assert!(stderr.starts_with("weightcast: ") && stderr.contains(wanted), "{stderr}");
        assert!(stderr.contains(&*file.to_string_lossy()), "{stderr}");
    }
    assert!(!folder.0.join("status.svg").exists(), "nothing is left of what failed");
}

#[test]
fn no_file_is_written_over_and_none_too_large_is_read() {
    let folder = Folder::new("over");
    let text = std::fs::read(FANOUT).expect("a result");
    let file = folder.file("run.svg", &text);
    let other_way =
        folder.0.join("../").join(folder.0.file_name().expect("a name")).join("run.svg");
    for output in [None, Some(&*file), Some(&*other_way)] {
        let ran = plot(&file, output);
        let (_, stderr) = said(&ran);
        assert!(
            ran.status.code() == Some(1) && stderr.contains("choose another --output"),
            "{stderr}"
        );
        assert_eq!(std::fs::read(&file).expect("still there"), text);
    }
    let nowhere = plot(Path::new(FANOUT), Some(&folder.0.join("none/run.svg")));
    assert!(said(&nowhere).1.contains("cannot write"), "{nowhere:?}");
    let large = folder.file("large.json", "");
    std::fs::File::options()
        .write(true)
        .open(&large)
        .and_then(|file| file.set_len((64 << 20) + 1))
        .expect("a sparse file");
    assert!(said(&plot(&large, None)).1.contains("larger than 64 MiB"));
}

/// What `sim --scenario` prints is drawn as it is.
#[test]
fn a_played_scenario_is_drawn() {
    let folder = Folder::new("scenario");
    let figure = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/figure-7b-burst.json");
    let figure = std::fs::read_to_string(figure).expect("a figure");
    let mut figure: serde_json::Value = serde_json::from_str(&figure).expect("JSON");
    figure["cases"].as_array_mut().expect("cases").truncate(2);
    let file = folder.file("figure.json", figure.to_string());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weightcast"));
    let played =
        command.args(["sim", "--json", "--scenario"]).arg(&file).output().expect("it runs");
    let played = folder.file("played.json", played.stdout);
    let svg = String::from_utf8(plot(&played, Some("-".as_ref())).stdout).expect("text");
    let texts = texts(&svg);
    let wanted = [
        "Simulated: a burst of replicas",
        "Waits for weights",
        "total stall: 2 rollout groups",
        "35.2",
    ];
    for text in wanted {
        assert!(texts.iter().any(|found| found == text), "{text} is not in {texts:?}");
    }
}
