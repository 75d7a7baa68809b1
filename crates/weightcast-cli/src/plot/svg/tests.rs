//! Pictures, read back as XML: what is where, and whether it can be read.

use roxmltree::{Document, Node};

use super::draw;
use super::lettering::{LABEL, Lettering, width};
use crate::plot::picture::{
    Bar, BarChart, BarSeries, Chart, Curve, CurveChart, Ink, Mark, Period, Picture, PicturePanel,
    PlotAxis, Spacing, Timeline, Track,
};

/// A name, and the points of its curve.
type NamedPoints<'a> = (&'a str, &'a [(f64, f64)]);

/// The left, upper, right and lower end of something.
type TextEdges = [f64; 4];

fn number(node: &Node, name: &str) -> f64 {
    let text = node.attribute(name).unwrap_or_else(|| panic!("{name} is not on {node:?}"));
    text.parse().unwrap_or_else(|_| panic!("{name} is {text}"))
}

fn named<'a>(document: &'a Document, name: &'static str) -> impl Iterator<Item = Node<'a, 'a>> {
    document.descendants().filter(move |node| node.has_tag_name(name))
}

/// What a viewer shows where the mouse rests on an element.
fn tip(node: Node) -> String {
    let title = node.children().find(|child| child.has_tag_name("title"));
    title.and_then(|title| title.text()).unwrap_or_default().to_owned()
}

fn edges(text: &Node) -> TextEdges {
    let bold = text.has_attribute("font-weight");
    let lettering = Lettering { size: number(text, "font-size"), bold, ..LABEL };
    let width = width(text.text().unwrap_or_default(), lettering);
    let left = match text.attribute("text-anchor") {
        None => number(text, "x"),
        Some("middle") => number(text, "x") - width / 2.0,
        _ => number(text, "x") - width,
    };
    let baseline = number(text, "y");
    [left, baseline - 0.72 * lettering.size, left + width, baseline + 0.2 * lettering.size]
}

/// All text can be read: it lies within the picture, and no two texts touch.
fn check_text(svg: &str) {
    let document = Document::parse(svg).expect("a picture is XML");
    let root = document.root_element();
    let (most_x, most_y) = (number(&root, "width"), number(&root, "height"));
    let texts: Vec<(&str, TextEdges)> = named(&document, "text")
        .map(|text| (text.text().unwrap_or_default(), edges(&text)))
        .collect();
    assert!(!texts.is_empty(), "nothing is written");
    for (place, (text, [left, top, right, bottom])) in texts.iter().enumerate() {
        let within = *left >= 0.0 && *top >= 0.0 && *right <= most_x && *bottom <= most_y;
        assert!(within, "{text:?} is cut off: {left} {top} {right} {bottom}");
        for (other, [l, t, r, b]) in &texts[..place] {
            let touch = left < r && l < right && top < b && t < bottom;
            assert!(!touch, "{text:?} touches {other:?}");
        }
    }
}

fn panel(title: &str, chart: Chart) -> PicturePanel {
    PicturePanel { title: title.to_owned(), chart }
}

fn picture(rows: Vec<Vec<PicturePanel>>) -> Picture {
    Picture { title: "A title".to_owned(), notes: vec!["a note".to_owned()], rows }
}

fn curves(spacing: Spacing, of: &[NamedPoints]) -> Chart {
    let axis = |label: &str| PlotAxis { label: label.to_owned(), spacing };
    let curve = |(place, (name, points)): (usize, &NamedPoints)| Curve {
        name: (*name).to_owned(),
        ink: Ink::Other(place),
        points: points.to_vec(),
    };
    let curves = of.iter().enumerate().map(curve).collect();
    Chart::Curves(CurveChart { x: axis("steps"), y: axis("seconds"), curves, marks: Vec::new() })
}

fn bars(categories: &[&str], of: &[(&str, &[Option<f64>])]) -> Chart {
    let bar = |value: f64| Bar { value, remark: String::new() };
    let series = of.iter().map(|(name, values)| BarSeries {
        name: (*name).to_owned(),
        ink: Ink::Weightcast,
        bars: values.iter().map(|value| value.map(bar)).collect(),
    });
    Chart::Bars(BarChart {
        axis: "seconds".to_owned(),
        categories: categories.iter().map(|name| (*name).to_owned()).collect(),
        series: series.collect(),
    })
}

#[test]
fn points_lie_where_their_numbers_are() {
    let points = [(0.0, 0.0), (5.0, 2.5), (10.0, 10.0)];
    let chart = curves(Spacing::Linear, &[("reward", &points)]);
    let svg = draw(&picture(vec![vec![panel("p", chart)]]));
    check_text(&svg);
    let document = Document::parse(&svg).expect("XML");
    let dots: Vec<Node> = named(&document, "circle").collect();
    let tips: Vec<String> = dots.iter().map(|dot| tip(*dot)).collect();
    let wanted = ["0: 0 seconds", "5: 2.50 seconds", "10: 10 seconds"];
    assert_eq!(tips, wanted.map(|what| format!("reward, steps {what}")));
    let at = |dot: &Node| (number(dot, "cx"), number(dot, "cy"));
    let spots: Vec<(f64, f64)> = dots.iter().map(at).collect();
    let share = |from: f64, at: f64, to: f64| ((at - from) / (to - from) * 1e3).round() / 1e3;
    // Half of the way along, a quarter of the way up: y counts downwards.
    assert_eq!(share(spots[0].0, spots[1].0, spots[2].0), 0.5);
    assert_eq!(share(spots[0].1, spots[1].1, spots[2].1), 0.25);
    assert!(spots[2].1 < spots[0].1);
    let line = named(&document, "polyline").next().expect("a curve");
    let joined: Vec<String> = spots.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    assert_eq!((line.attribute("points"), tip(line)), (Some(&*joined.join(" ")), "reward".into()));
    // The tick of a value stands at the value.
    let tick = named(&document, "text").find(|text| text.text() == Some("5")).expect("a tick");
    assert_eq!(number(&tick, "x"), spots[1].0);
}

#[test]
fn a_mark_stands_between_the_points_that_it_is_between() {
    let points = [(0.0, 1.0), (5.0, 2.0), (10.0, 1.0)];
    let mut chart = curves(Spacing::Fitted, &[("reward", &points)]);
    if let Chart::Curves(chart) = &mut chart {
        let mark = |x: f64, name: &str| Mark { x, name: name.to_owned() };
        chart.marks = vec![mark(2.5, "node lost"), mark(9.75, "a name without room")];
    }
    let svg = draw(&picture(vec![vec![panel("p", chart)]]));
    check_text(&svg);
    let document = Document::parse(&svg).expect("XML");
    let spots: Vec<f64> = named(&document, "circle").map(|dot| number(&dot, "cx")).collect();
    let dashed = named(&document, "line").filter(|line| line.has_attribute("stroke-dasharray"));
    let lines: Vec<(f64, f64)> = dashed.map(|l| (number(&l, "x1"), number(&l, "x2"))).collect();
    let quarter = spots[0] + (spots[2] - spots[0]) / 4.0;
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|(from, to)| from == to), "upright: {lines:?}");
    assert!((lines[0].0 - quarter).abs() < 0.2, "{lines:?}, not {quarter}");
    let name = named(&document, "text").find(|text| text.text() == Some("node lost"));
    assert!((number(&name.expect("its name"), "x") - lines[0].0 - 4.0).abs() < 0.2);
}

#[test]
fn a_bar_is_as_long_as_its_number_is_large() {
    let chart = bars(&["a", "b"], &[("x", &[Some(1.0), None]), ("y", &[Some(4.0), Some(-2.0)])]);
    let svg = draw(&picture(vec![vec![panel("p", chart)]]));
    check_text(&svg);
    let document = Document::parse(&svg).expect("XML");
    let bars: Vec<Node> = named(&document, "rect").filter(|rect| !tip(*rect).is_empty()).collect();
    let tips: Vec<String> = bars.iter().map(|bar| tip(*bar)).collect();
    assert_eq!(tips, ["a, x: 1 seconds", "a, y: 4 seconds", "b, y: -2 seconds"]);
    let widths: Vec<f64> = bars.iter().map(|bar| number(bar, "width")).collect();
    assert!((widths[1] / widths[0] - 4.0).abs() < 0.01, "{widths:?}");
    assert!((widths[2] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
    // The negative one ends where the others begin.
    let ends = number(&bars[2], "x") + widths[2];
    assert!((ends - number(&bars[0], "x")).abs() < 0.2, "{ends}");
}

#[test]
fn a_version_lies_in_its_time_with_its_number_where_there_is_room() {
    let period = |version, from_s, to_s| Period { version, from_s, to_s };
    let periods = vec![period(107, 8.0, 12.0), period(108, 12.0, 12.001), period(109, 15.0, 99.0)];
    let track = Track { name: "rollout-0/1".to_owned(), periods };
    let timeline = Timeline { from_s: 10.0, to_s: 20.0, tracks: vec![track] };
    let svg = draw(&picture(vec![vec![panel("p", Chart::Timeline(timeline))]]));
    check_text(&svg);
    let document = Document::parse(&svg).expect("XML");
    let blocks: Vec<Node> =
        named(&document, "rect").filter(|rect| !tip(*rect).is_empty()).collect();
    assert_eq!(tip(blocks[0]), "rollout-0/1: version 107 from 8.000 to 12.000 s");
    let fills = [0, 1, 2].map(|place| blocks[place].attribute("fill"));
    assert!(fills[0] != fills[1] && fills[0] == fills[2], "neighbours differ in tone: {fills:?}");
    let spans = |block: &Node| (number(block, "x"), number(block, "width"));
    let [(left, two), (_, short), (x, five)] = [0, 1, 2].map(|place| spans(&blocks[place]));
    assert!((five / two - 2.5).abs() < 0.01 && short < 1.0, "{two} {five} {short}");
    assert!(((x - left) / five - 1.0).abs() < 0.01, "the third begins in the middle");
    let texts: Vec<&str> = named(&document, "text").filter_map(|text| text.text()).collect();
    let shown = ["107", "108", "109"].map(|number| texts.contains(&number));
    assert_eq!(shown, [true, false, true]);
}

#[test]
fn a_legend_names_each_series_if_there_are_several() {
    for (series, shown) in [(&["one"][..], false), (&["one", "two"], true)] {
        let of: Vec<_> = series.iter().map(|name| (*name, &[(1.0, 1.0)][..])).collect();
        let svg = draw(&picture(vec![vec![panel("p", curves(Spacing::Doubling, &of))]]));
        let document = Document::parse(&svg).expect("XML");
        let texts: Vec<&str> = named(&document, "text").filter_map(|text| text.text()).collect();
        assert!(series.iter().all(|name| texts.contains(name) == shown), "{texts:?}");
    }
}

/// A legend's line has the colour of its curve, and no other curve has that colour.
#[test]
fn colours_tell_curves_apart() {
    let points = [(1.0, 1.0), (2.0, 3.0)];
    let names = ["a", "b", "c", "d", "e"];
    let chart = curves(Spacing::Linear, &names.map(|name| (name, &points[..])));
    let Chart::Curves(mut chart) = chart else { unreachable!("curves") };
    for (curve, ink) in chart.curves.iter_mut().zip([Ink::Weightcast, Ink::Compared, Ink::Limit]) {
        curve.ink = ink;
    }
    let svg = draw(&picture(vec![vec![panel("p", Chart::Curves(chart))]]));
    let document = Document::parse(&svg).expect("XML");
    let look = |node: Node| {
        let look = ["stroke", "stroke-dasharray"].map(|name| node.attribute(name));
        look.map(|value| value.unwrap_or_default().to_owned())
    };
    let drawn: Vec<_> = named(&document, "polyline").map(look).collect();
    let thick = named(&document, "line").filter(|line| line.attribute("stroke-width") == Some("2"));
    assert_eq!(drawn, thick.map(look).collect::<Vec<_>>());
    let different: std::collections::BTreeSet<_> = drawn.iter().map(|look| &look[0]).collect();
    assert_eq!(different.len(), names.len());
    let dashed: Vec<bool> = drawn.iter().map(|look| !look[1].is_empty()).collect();
    assert_eq!(dashed, [false, false, true, false, false], "limits are dashed");
}

/// Marks of many points would be a band; few are marked, with their numbers.
#[test]
fn few_points_are_marked() {
    for (count, marks) in [(39, 39), (40, 40), (41, 0)] {
        let points: Vec<(f64, f64)> = (0..count).map(|n| (f64::from(n), 1.0)).collect();
        let svg =
            draw(&picture(vec![vec![panel("p", curves(Spacing::Linear, &[("c", &points)]))]]));
        let document = Document::parse(&svg).expect("XML");
        assert_eq!(named(&document, "circle").count(), marks);
        let line = named(&document, "polyline").next().expect("a curve");
        let spots = line.attribute("points").expect("points").split(' ').count();
        assert_eq!(spots, points.len());
    }
}

/// Names and numbers of any kind: always XML, always readable.
#[test]
fn whatever_a_file_says_can_be_drawn() {
    let long = "m".repeat(100_000);
    let many: Vec<(f64, f64)> = (0..100).map(|n| (f64::from(n), f64::from(n % 7))).collect();
    let odd = [f64::MAX, f64::MIN, 5e-324, 0.0, -1e-9, 1e15, f64::NAN, f64::INFINITY];
    for name in ["", "<script>&\"']]>", "\u{0}\u{1f}\u{ffff}", "名前", &long] {
        for value in odd {
            for spacing in [Spacing::Fitted, Spacing::Logarithmic, Spacing::Doubling] {
                let few = [(value, 1.0), (2.0, value)];
                let of: &[NamedPoints] = &[(name, &few), ("many", &many), (name, &[])];
                let period = Period { version: u64::MAX, from_s: 0.5, to_s: 0.25 };
                let track = Track { name: name.to_owned(), periods: vec![period] };
                let from_s = if value.is_finite() { value } else { 0.0 };
                let timeline = Timeline { from_s, to_s: 1.0, tracks: vec![track] };
                let rows = vec![
                    vec![panel(name, curves(spacing, of)), panel(name, bars(&[], &[]))],
                    vec![panel(name, bars(&[name, "b"], &[(name, &[Some(value), Some(1.0)])]))],
                    vec![panel(name, Chart::Timeline(timeline))],
                    vec![panel(name, curves(spacing, &[]))],
                ];
                let drawn = picture(rows);
                let svg = draw(&drawn);
                check_text(&svg);
                assert_eq!(svg, draw(&drawn), "always the same");
                assert!(!svg.contains("NaN") && !svg.contains("inf"), "{value}");
            }
        }
    }
}

/// All results that are kept. Pictures that are kept beside them are these.
#[test]
fn kept_results_can_be_drawn_and_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let files =
        std::fs::read_dir(folder).expect("results").map(|file| file.expect("a file").path());
    let files: Vec<_> = files.filter(|file| file.extension() == Some("json".as_ref())).collect();
    assert!(files.len() >= 8, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).expect("a result");
        let picture = crate::plot::kinds::picture(&text);
        let picture = picture.unwrap_or_else(|error| panic!("{}: {error:#}", file.display()));
        let svg = draw(&picture);
        check_text(&svg);
        if let Ok(kept) = std::fs::read_to_string(file.with_extension("svg")) {
            assert!(kept == svg, "draw it again: weightcast plot {}", file.display());
        }
    }
}
