//! The text, read back as Prometheus' documentation says that it is read.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// One line: its name, its labels, its value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ReadSample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

/// A family that was read back.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ReadFamily {
    pub(crate) kind: String,
    pub(crate) meaning: String,
    pub(crate) samples: Vec<ReadSample>,
}

impl ReadFamily {
    /// The names of its labels, but for that of a histogram's bounds.
    pub(crate) fn labels(&self) -> BTreeSet<String> {
        let labels = self.samples.iter().flat_map(|sample| sample.labels.keys().cloned());
        labels.filter(|label| label != "le").collect()
    }

    /// The values of its samples, by those of their labels in the order of the labels' names.
    pub(crate) fn values(&self) -> BTreeMap<Vec<&str>, f64> {
        let samples = self.samples.iter();
        samples.map(|s| (s.labels.values().map(String::as_str).collect(), s.value)).collect()
    }
}

/// Reads a text; each family by its name. Panics at what Prometheus would refuse.
pub(crate) fn read(text: &str) -> BTreeMap<String, ReadFamily> {
    let mut families = BTreeMap::<String, ReadFamily>::new();
    let mut current = String::new();
    assert!(text.ends_with('\n'), "the last line has an end");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, meaning) = help.split_once(' ').expect("a meaning");
            current = name.to_owned();
            let family = ReadFamily { meaning: meaning.to_owned(), ..ReadFamily::default() };
            assert!(families.insert(current.clone(), family).is_none(), "{name} twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let kind = kind.strip_prefix(&format!("{current} ")).expect("of the same family");
            families.get_mut(&current).unwrap().kind = kind.to_owned();
        } else {
            let sample = sample(line);
            let suffix = sample.name.strip_prefix(&current).expect("of the family above");
            let family = families.get_mut(&current).unwrap();
            let suffixes: &[&str] = match family.kind.as_str() {
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            assert!(suffixes.contains(&suffix), "{line}");
            let alike =
                |other: &ReadSample| (&other.name, &other.labels) == (&sample.name, &sample.labels);
            assert!(!family.samples.iter().any(alike), "twice: {line}");
            family.samples.push(sample);
        }
    }
    families
}

fn sample(line: &str) -> ReadSample {
    let end = line.find(['{', ' ']).expect("a name");
    let (name, mut rest) = line.split_at(end);
    let is_name = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
    assert!(name.starts_with("weightcast_") && name.chars().all(is_name), "{name}");
    let mut labels = BTreeMap::new();
    if let Some(of) = rest.strip_prefix('{') {
        rest = of;
        loop {
            let (label, value) = rest.split_once("=\"").expect("a label");
            let (value, after) = quoted(value);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{line}");
            match after.split_at(1) {
                (",", more) => rest = more,
                ("}", after) => {
                    rest = after;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let value = rest.strip_prefix(' ').expect("a value").parse().expect("a number");
    ReadSample { name: name.to_owned(), labels, value }
}

/// A value up to its quote, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match characters.next().expect("what is escaped").1 {
                'n' => '\n',
                escaped @ ('"' | '\\') => escaped,
                other => panic!("{other} is not escaped"),
            }),
            other => value.push(other),
        }
    }
    panic!("a value has no end: {text}");
}

#[test]
fn what_is_written_is_read_back() {
    let names = ["plain", "a\"b", "c\\", "d\ne", "f\\n", "g{h=\"i\"} 7", "", "\u{e9}\r\t#"];
    let mut text = Exposition::default();
    text.one("weightcast_one", FamilyKind::Gauge, "One.", -1.5);
    let mut many = text.family("weightcast_many_total", FamilyKind::Counter, "Many: of \"each\".");
    for (at, name) in names.iter().enumerate() {
        many.sample(&[("model", name), ("call", "x")], at as f64 + 1e15);
    }
    text.family("weightcast_none", FamilyKind::Gauge, "None.");
    let read = read(&text.into_text());
    assert_eq!(read["weightcast_one"].values(), BTreeMap::from([(vec![], -1.5)]));
    assert_eq!(read["weightcast_none"].samples, []);
    let many = &read["weightcast_many_total"];
    assert_eq!((many.kind.as_str(), many.meaning.as_str()), ("counter", "Many: of \"each\"."));
    let expected = names.iter().enumerate();
    let expected = expected.map(|(at, name)| (vec!["x", *name], at as f64 + 1e15)).collect();
    assert_eq!(many.values(), expected);
}

#[test]
fn a_histogram_has_its_bounds_its_sum_and_its_count() {
    let mut durations = DurationHistogram::default();
    for milliseconds in [3, 700, 700, 400_000] {
        durations.add(Span::from_millis(milliseconds));
    }
    let mut text = Exposition::default();
    let mut family = text.family("weightcast_d", FamilyKind::Histogram, "How long.");
    family.histogram(&[("call", "c")], &durations);
    let samples = read(&text.into_text())["weightcast_d"].samples.clone();
    let bucket = |bound: &str| {
        let of = samples.iter().find(|s| s.labels.get("le").is_some_and(|le| le == bound));
        of.unwrap_or_else(|| panic!("{bound} in {samples:?}")).value
    };
    let expected =
        [("0.001", 0.0), ("0.005", 1.0), ("0.5", 1.0), ("1", 3.0), ("300", 3.0), ("+Inf", 4.0)];
    for (bound, below) in expected {
        assert_eq!(bucket(bound), below, "{bound}");
    }
    let [.., sum, count] = &samples[..] else { panic!("{samples:?}") };
    assert_eq!((sum.name.as_str(), sum.value), ("weightcast_d_sum", 401.403));
    assert_eq!((count.name.as_str(), count.value), ("weightcast_d_count", 4.0));
    assert!(samples.iter().all(|sample| sample.labels["call"] == "c"));
}
