//! The report as text.

use std::fmt::Write;

use super::report::{CaseReport, Floor, LimitTimes, StackTimes, TransferReport, WayTimes};

/// The whole report.
pub(crate) fn table(report: &TransferReport) -> String {
    let machine = &report.machine;
    let mut text = format!(
        "{}, {} CPUs, Linux {}; medians of {} runs, digests on{}\n",
        machine.cpu,
        machine.cpus,
        machine.kernel,
        report.runs,
        if report.quick { "; QUICK: too small to judge speed by" } else { "" }
    );
    publish(&mut text, report);
    for transfer in &report.transfers {
        case(&mut text, transfer);
    }
    let floors = || report.transfers.iter().flat_map(|t| &t.ways).flat_map(|way| &way.floors);
    let kept = floors().filter(|floor| floor.pass).count();
    let verified = if report.verified { "every byte verified" } else { "UNVERIFIED BYTES" };
    let _ = writeln!(
        text,
        "\n{kept} of {} floors reached; {verified}; {:.0} s",
        floors().count(),
        report.seconds
    );
    text
}

fn publish(text: &mut String, report: &TransferReport) {
    if report.publish.is_empty() {
        return;
    }
    let _ = writeln!(text, "\npublish{:>31}{:>16}", "publish", "then sealed in");
    for size in &report.publish {
        let (publish, seal) = (seconds(size.median_s), seconds(size.seal_median_s));
        let title = format!("{} MiB, {} tensors", size.bytes >> 20, size.tensors);
        let _ = writeln!(text, "  {title:26}{publish:>10}{seal:>16}");
    }
}

fn case(text: &mut String, transfer: &CaseReport) {
    let plural = if transfer.tensors == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "\n{}: {} tensor{plural}, {:.1} MB, {} -> {} shards\n  {:46}{:>10}{:>8}{:>10}{:>14}{:>9}{:>10}",
        transfer.case,
        transfer.tensors,
        transfer.bytes as f64 / 1e6,
        transfer.source_shards,
        transfer.target_shards,
        "",
        "median",
        "GB/s",
        "of limit",
        "min..max",
        "CPU s",
        "extra MB"
    );
    for way in &transfer.ways {
        one_way(text, way);
    }
}

fn one_way(text: &mut String, times: &WayTimes) {
    if let Some(why) = &times.unavailable {
        let _ = writeln!(text, "  {}: not possible: {why}", times.way);
    }
    if let Some(stack) = &times.stack {
        update(text, times.way, stack);
    }
    for limit in &times.limits {
        limit_row(text, limit);
    }
    for floor in &times.floors {
        floor_row(text, times.way, floor);
    }
}

fn update(text: &mut String, way: &str, stack: &StackTimes) {
    let extra = stack.extra_bytes.map_or("?".to_owned(), |b| format!("{:.1}", b as f64 / 1e6));
    let _ = writeln!(
        text,
        "  {:46}{:>10}{:>8.2}{:>10}{:>14}{:>9.3}{extra:>10}",
        format!("update, {way}"),
        seconds(stack.median_s),
        stack.gb_per_s,
        "",
        "",
        stack.cpu_s,
    );
}

fn limit_row(text: &mut String, limit: &LimitTimes) {
    let _ = writeln!(
        text,
        "    {:44}{:>10}{:>8.2}{:>10.2}{:>14}{:>9.3}",
        limit.limit,
        seconds(limit.median_s),
        limit.gb_per_s,
        limit.ratio,
        format!("{:.2}..{:.2}", limit.ratio_min, limit.ratio_max),
        limit.cpu_s,
    );
}

fn floor_row(text: &mut String, way: &str, floor: &Floor) {
    let Floor { what, wanted, got, pass } = floor;
    let verdict = match pass {
        true => "pass".to_owned(),
        false => format!("MISS by {:.0} %", (got / wanted - 1.0).abs() * 100.0),
    };
    let _ = match what.as_str() {
        "seconds" => writeln!(
            text,
            "  floor, {way}: under {}: {}: {verdict}",
            seconds(*wanted),
            seconds(*got)
        ),
        _ => writeln!(text, "  floor, {way}: {wanted} {what}: {got:.2}: {verdict}"),
    };
}

/// A time in milliseconds or seconds, whichever suits.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_have_the_unit_that_suits() {
        for (time, said) in [
            (0.0, "0.00 ms"),
            (0.0015, "1.50 ms"),
            (0.0999, "99.90 ms"),
            (0.1, "0.100 s"),
            (12.3456, "12.346 s"),
        ] {
            assert_eq!(seconds(time), said);
        }
    }

    fn report(passed: &[bool], verified: bool) -> TransferReport {
        let floors = passed.iter().map(|&pass| Floor::at_least(String::new(), 1.0, pass.into()));
        let floors: Vec<Floor> = floors.collect();
        let way = WayTimes {
            way: "tcp",
            unavailable: Some("no".into()),
            stack: None,
            limits: vec![],
            floors,
        };
        let transfer = CaseReport {
            case: "tiny".into(),
            tensors: 1,
            bytes: 1_500_000,
            source_shards: 2,
            target_shards: 3,
            rows: Vec::new(),
            ways: vec![way],
        };
        TransferReport {
            machine: crate::base::machine::machine(),
            quick: !verified,
            runs: 5,
            socket_pairs: Vec::new(),
            transfers: vec![transfer],
            publish: Vec::new(),
            verified,
            seconds: 7.0,
        }
    }

    #[test]
    fn floors_are_counted_and_bytes_vouched_for() {
        for (passed, kept) in
            [(&[][..], "0 of 0"), (&[false], "0 of 1"), (&[true, false, true], "2 of 3")]
        {
            for (verified, said) in [(true, "every byte verified"), (false, "UNVERIFIED BYTES")] {
                let text = table(&report(passed, verified));
                assert!(
                    text.ends_with(&format!("\n{kept} floors reached; {said}; 7 s\n")),
                    "{text}"
                );
                assert_eq!(text.contains("QUICK"), !verified);
                assert!(text.contains("\ntiny: 1 tensor, 1.5 MB, 2 -> 3 shards\n"), "{text}");
                assert!(text.contains("  tcp: not possible: no\n"), "{text}");
                assert!(!text.contains("publish"), "{text}");
            }
        }
    }

    #[test]
    fn a_floor_is_told_with_what_is_missed() {
        for (floor, said) in [
            (
                Floor::at_least("of memcpy".into(), 0.8, 0.9),
                "floor, tcp: 0.8 of memcpy: 0.90: pass",
            ),
            (
                Floor::at_least("of memcpy".into(), 0.8, 0.6),
                "floor, tcp: 0.8 of memcpy: 0.60: MISS by 25 %",
            ),
            (Floor::below("seconds".into(), 0.5, 0.25), "floor, tcp: under 0.500 s: 0.250 s: pass"),
            (
                Floor::below("seconds".into(), 0.5, 1.0),
                "floor, tcp: under 0.500 s: 1.000 s: MISS by 100 %",
            ),
        ] {
            let mut text = String::new();
            floor_row(&mut text, "tcp", &floor);
            assert_eq!(text, format!("  {said}\n"));
        }
    }

    #[test]
    fn the_longest_name_of_a_limit_leaves_its_figures_in_their_columns() {
        let rows = ["memcpy x2", "best socket pair (4 x 256 KiB) with digests"].map(|name| {
            let times = LimitTimes::new(name.to_owned(), 1_000, vec![1.0], 0.0, &[2.0]);
            let mut text = String::new();
            limit_row(&mut text, &times);
            text
        });
        assert_eq!(rows[0].len(), rows[1].len(), "{rows:?}");
        assert_eq!(rows[0].find("1.000 s"), rows[1].find("1.000 s"), "{rows:?}");
    }
}
