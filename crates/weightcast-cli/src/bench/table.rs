//! The report for people.

use std::fmt::Write;

use super::report::{Floor, LimitTimes, Report, StackTimes, Transfer, WayTimes};

/// The whole report.
pub(crate) fn table(report: &Report) -> String {
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

fn publish(text: &mut String, report: &Report) {
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

fn case(text: &mut String, transfer: &Transfer) {
    let plural = if transfer.tensors == 1 { "" } else { "s" };
    let _ = writeln!(
        text,
        "\n{}: {} tensor{plural}, {:.1} MB, {} -> {} shards\n  {:28}{:>10}{:>8}{:>10}{:>14}{:>9}{:>10}",
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
        "  {:28}{:>10}{:>8.2}{:>10}{:>14}{:>9.3}{extra:>10}",
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
        "    {:26}{:>10}{:>8.2}{:>10.2}{:>14}{:>9.3}",
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

/// In the unit that suits.
fn seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.1 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.3} s"),
    }
}
