//! The kinds of files that are drawn, and by what each is known. A new kind is a row of [`KINDS`], a file of
//! `reading` and a file of `picture`.

use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::picture::{Picture, control, demo, elastic, fanout, ray_loss, scenario, transfer};

/// A kind of file.
struct FileKind {
    /// The command that makes it.
    name: &'static str,
    sign: Sign,
    picture: fn(&str) -> serde_json::Result<Picture>,
}

/// What a file is known by.
enum Sign {
    /// The value of `weightcast`: the kind, and the version of its schema.
    Named(&'static str),
    /// Names that only this kind has at the top: reports of benches do not say what they are.
    Fields([&'static str; 2]),
}

/// The name under which a file says what it is.
const NAME: &str = "weightcast";

const KINDS: [FileKind; 7] = [
    FileKind {
        name: "weightcast demo --json FILE",
        sign: Sign::Named("demo/1"),
        picture: |text| read(text, demo::picture),
    },
    FileKind {
        name: "python -m weightcast.examples.ray_loss --json FILE",
        sign: Sign::Named("ray-loss/1"),
        picture: |text| read(text, ray_loss::picture),
    },
    FileKind {
        name: "weightcast bench fanout --json",
        sign: Sign::Fields(["spreads", "rate_mbit"]),
        picture: |text| read(text, fanout::picture),
    },
    FileKind {
        name: "weightcast bench transfer --json",
        sign: Sign::Fields(["transfers", "publish"]),
        picture: |text| read(text, transfer::picture),
    },
    FileKind {
        name: "weightcast bench control --json",
        sign: Sign::Fields(["mixed", "herds"]),
        picture: |text| read(text, control::picture),
    },
    FileKind {
        name: "weightcast bench elastic --json",
        sign: Sign::Fields(["joins", "cdf_s"]),
        picture: |text| read(text, elastic::picture),
    },
    FileKind {
        name: "weightcast sim --scenario SCENARIO --json",
        sign: Sign::Fields(["figure", "cases"]),
        picture: |text| read(text, scenario::picture),
    },
];

/// The picture of a file's text, whatever kind it is.
///
/// Errors: no JSON, no kind that is known, or not as files of its kind are.
pub(super) fn picture(text: &str) -> anyhow::Result<Picture> {
    let value: Value = serde_json::from_str(text).context("no JSON")?;
    let Value::Object(fields) = value else {
        bail!("{}; found JSON without names at its top", known());
    };
    let Some(kind) = KINDS.iter().find(|kind| kind.sign.is_on(&fields)) else {
        bail!("{}; found {}", known(), found(&fields));
    };
    let picture =
        (kind.picture)(text).with_context(|| format!("not as `{}` writes it", kind.name))?;
    if picture.rows.is_empty() {
        bail!("nothing was measured in this file of `{}`: there is nothing to draw", kind.name);
    }
    Ok(picture)
}

impl Sign {
    fn is_on(&self, fields: &Map<String, Value>) -> bool {
        match self {
            Sign::Named(name) => fields.get(NAME).and_then(Value::as_str) == Some(name),
            Sign::Fields(names) => names.iter().all(|name| fields.contains_key(*name)),
        }
    }
}

/// Parsed from the text, not from its value: errors then tell the line.
fn read<'a, F: Deserialize<'a>>(
    text: &'a str,
    picture: fn(&F) -> Picture,
) -> serde_json::Result<Picture> {
    Ok(picture(&serde_json::from_str(text)?))
}

fn known() -> String {
    let names: Vec<String> = KINDS.iter().map(|kind| format!("`{}`", kind.name)).collect();
    format!("no kind of file that can be drawn: these are what {} write", names.join(", "))
}

/// What a file has at its top, as far as a message has room.
fn found(fields: &Map<String, Value>) -> String {
    if let Some(name) = fields.get(NAME) {
        return format!("\"{NAME}\": {}", shortened(&name.to_string()));
    }
    let names: Vec<String> = fields.keys().take(8).map(|name| shortened(name)).collect();
    match (names.len(), fields.len() - names.len()) {
        (0, _) => "no names at its top".to_owned(),
        (_, 0) => format!("at its top {}", names.join(", ")),
        (_, more) => format!("at its top {} and {more} more", names.join(", ")),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        format!("{:#}", picture(text).expect_err("it cannot be drawn"))
    }

    #[test]
    fn a_refusal_says_what_was_found_and_what_is_known() {
        let long = format!("{{\"{}\": 1}}", "n".repeat(1_000));
        let many = format!(
            "{{{}}}",
            (10..20).map(|n| format!("\"f{n}\": 0")).collect::<Vec<_>>().join(",")
        );
        for (text, found) in [
            ("[1, 2]", "found JSON without names at its top"),
            ("{}", "found no names at its top"),
            (r#"{"sessions": 0, "models": []}"#, "found at its top models, sessions"),
            (r#"{"weightcast": "demo/2", "runs": []}"#, r#"found "weightcast": "demo/2""#),
            (r#"{"weightcast": 7}"#, r#"found "weightcast": 7"#),
            (r#"{"spreads": []}"#, "found at its top spreads"),
            (&long, "nnn…"),
            (&many, "f16, f17 and 2 more"),
        ] {
            let said = refusal(text);
            assert!(said.ends_with(found), "{said}");
            assert!(said.len() < 400, "{said}");
            for kind in KINDS {
                assert!(said.contains(&format!("`{}`", kind.name)), "{said}");
            }
        }
    }

    #[test]
    fn a_broken_file_is_told_by_its_place() {
        assert!(refusal("{\n \"weightcast\": \"demo/1\",").starts_with("no JSON: EOF"));
        let said = refusal("{\n\"weightcast\": \"demo/1\",\n\"runs\": [{\"steps\": 7}]}");
        let wanted = "not as `weightcast demo --json FILE` writes it: invalid type: integer `7`";
        assert!(said.starts_with(wanted) && said.contains("line 3"), "{said}");
        let deep = "[".repeat(10_000);
        assert!(refusal(&deep).contains("recursion limit"));
    }

    #[test]
    fn a_file_that_measured_nothing_is_refused() {
        let machine = r#""machine": {"cpu": "c", "cpus": 1, "kernel": "k"}"#;
        for (name, text) in [
            ("weightcast demo --json FILE", r#"{"weightcast": "demo/1", "runs": []}"#.to_owned()),
            (
                "python -m weightcast.examples.ray_loss --json FILE",
                format!("{{{machine}, \"weightcast\": \"ray-loss/1\", \"runs\": []}}"),
            ),
            (
                "weightcast bench control --json",
                format!(
                    "{{{machine}, \"load_threads\": 1, \"mixed\": [], \"herds\": [], \"sweep\": []}}"
                ),
            ),
            (
                "weightcast bench fanout --json",
                format!("{{{machine}, \"bytes\": 1, \"rate_mbit\": 1, \"spreads\": []}}"),
            ),
            (
                "weightcast sim --scenario SCENARIO --json",
                r#"{"figure": "f", "cases": []}"#.to_owned(),
            ),
        ] {
            let said = refusal(&text);
            assert!(
                said.starts_with(&format!("nothing was measured in this file of `{name}`")),
                "{said}"
            );
        }
    }

    /// A file of one kind is never taken for one of another.
    #[test]
    fn no_file_has_the_signs_of_two_kinds() {
        for kind in KINDS {
            let fields: Map<String, Value> = match kind.sign {
                Sign::Named(name) => [(NAME.to_owned(), name.into())].into_iter().collect(),
                Sign::Fields(names) => names.iter().map(|n| ((*n).to_owned(), 0.into())).collect(),
            };
            let known = KINDS.iter().filter(|other| other.sign.is_on(&fields));
            assert_eq!(known.map(|other| other.name).collect::<Vec<_>>(), [kind.name]);
        }
    }
}
