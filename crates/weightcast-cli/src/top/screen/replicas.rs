//! The replicas of a model: what each holds, how stale that is, and what it does, with a bar for each read.

use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use weightcast::wire::{ModelStatus, PendingStatus, ReadingStatus, ReplicaStatus};

use super::panel::Panel;
use crate::output::{size, time};
use crate::top::state::Sort;

/// Characters of a bar, and of a bar on a screen of fewer columns than [`NARROW`].
const BARS: [usize; 2] = [20, 8];
/// Columns of a screen that has room for a long bar and its numbers.
const NARROW: usize = 100;
/// The most characters of a name that are shown.
const NAME: usize = 28;

/// The heading of the columns.
const TITLES: [&str; 6] = ["replica", "role", "state", "shards", "version", "behind"];

/// The replicas from place `first` on.
pub(super) fn panel(model: &ModelStatus, sort: Sort, first: usize, width: usize) -> Panel {
    let mut replicas: Vec<&ReplicaStatus> = model.replicas.iter().collect();
    replicas.sort_by(|a, b| match sort {
        Sort::Activity => (activity(a), &a.name).cmp(&(activity(b), &b.name)),
        Sort::Name => a.name.cmp(&b.name),
        Sort::Staleness => staleness(b).total_cmp(&staleness(a)).then(a.name.cmp(&b.name)),
    });
    let cells: Vec<Cells> = replicas.iter().map(|replica| cells(replica)).collect();
    let mut widths = TITLES.map(str::len);
    for row in &cells {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let titles = padded(&TITLES.map(str::to_owned), &widths).map(|cell| cell.dim());
    let rows = replicas.iter().zip(&cells).skip(first);
    let rows = rows.map(|(replica, cells)| row(replica, cells, &widths, width));
    let readers = replicas.iter().filter(|replica| replica.reading.is_some()).count();
    let above = if first > 0 { format!(", {first} above") } else { String::new() };
    let title = format!("{} replicas, {readers} of them reading{above}", replicas.len());
    Panel { title, columns: Some(Line::from(titles.to_vec())), rows: rows.collect() }
}

/// The columns of a replica, before its bar.
type Cells = [String; 6];

fn cells(replica: &ReplicaStatus) -> Cells {
    let behind = match (replica.versions_behind, replica.stale_s) {
        (Some(behind), Some(stale)) if behind > 0 => format!("{behind} for {}", time(stale)),
        _ => String::new(),
    };
    [
        replica.name.chars().take(NAME).collect(),
        replica.role.clone(),
        replica.state.clone(),
        format!("{}/{}", connected(replica), replica.num_shards),
        versions(replica),
        behind,
    ]
}

fn padded(cells: &Cells, widths: &[usize; 6]) -> [String; 6] {
    std::array::from_fn(|column| format!("  {:<1$}", cells[column], widths[column]))
}

fn connected(replica: &ReplicaStatus) -> usize {
    replica.shards.iter().filter(|shard| shard.connected).count()
}

/// The order by activity: trouble first.
fn activity(replica: &ReplicaStatus) -> u8 {
    let cut_off = replica.shards.iter().any(|shard| !shard.connected);
    match replica.state.as_str() {
        "broken" | "fenced" | "recovering" => 0,
        _ if cut_off => 0,
        _ if replica.reading.is_some() => 1,
        _ if replica.pending_call.is_some() => 2,
        "opening" | "draining" | "installing" | "closing" => 3,
        _ => 4,
    }
}

fn staleness(replica: &ReplicaStatus) -> f64 {
    replica.stale_s.unwrap_or(-1.0)
}

fn row(replica: &ReplicaStatus, cells: &Cells, widths: &[usize; 6], width: usize) -> Line<'static> {
    let [name, role, state, shards, version, behind] = padded(cells, widths);
    let whole = connected(replica) == replica.num_shards as usize;
    let mut spans: Vec<Span<'static>> = vec![
        name.into(),
        role.into(),
        Span::styled(state, state_style(&replica.state)),
        Span::styled(shards, if whole { Style::new() } else { Style::new().red() }),
        version.into(),
        behind.yellow(),
        "  ".into(),
    ];
    match (&replica.reading, &replica.pending_call) {
        (Some(reading), _) => {
            spans.extend(bar(reading, BARS[usize::from(width < NARROW)]));
            // A number that is cut off reads as another number.
            let mut used = Line::from(spans.clone()).width();
            let numbers = numbers(reading).into_iter();
            spans.extend(numbers.map_while(|number| {
                used += number.len();
                (used <= width).then(|| Span::from(number))
            }));
        }
        (None, Some(pending)) => spans.push(waits(pending, replica.num_shards).into()),
        (None, None) => {}
    }
    Line::from(spans)
}

fn state_style(state: &str) -> Style {
    let style = Style::new();
    match state {
        "broken" | "fenced" => style.fg(Color::Red).bold(),
        "reading" | "installing" => style.fg(Color::Cyan),
        "draining" | "closing" | "recovering" => style.fg(Color::Yellow),
        "sealed" | "published" => style.fg(Color::Green),
        _ => style,
    }
}

/// The version that a replica holds, and the version that it reads: `6`, `-`, `-> 7`, `6 -> 7`.
fn versions(replica: &ReplicaStatus) -> String {
    let held = replica.version.map(|version| version.to_string());
    match (held, &replica.reading) {
        (held, None) => held.unwrap_or_else(|| "-".to_owned()),
        (None, Some(reading)) => format!("-> {}", reading.version),
        (Some(held), Some(reading)) => format!("{held} -> {}", reading.version),
    }
}

fn bar(reading: &ReadingStatus, length: usize) -> [Span<'static>; 2] {
    let full = share(reading.arrived_bytes, reading.total_bytes, length);
    ["#".repeat(full).cyan(), ".".repeat(length - full).dim()]
}

/// The numbers of a read, the most important first.
fn numbers(reading: &ReadingStatus) -> [String; 4] {
    let ReadingStatus { arrived_bytes, total_bytes, .. } = *reading;
    let rate = reading.bytes_per_s.map_or(String::new(), |rate| format!("{}/s", size(rate)));
    let left = reading.remaining_s.map_or(String::new(), |left| format!("{} left", time(left)));
    [
        format!(" {:>3} %", share(arrived_bytes, total_bytes, 100)),
        format!("  {rate:>11}"),
        format!("  {left:>11}"),
        format!("  {} of {}", size(arrived_bytes), size(total_bytes)),
    ]
}

/// What part of `of` so many bytes of a total are, rounded down; never more than `of`.
pub(super) fn share(bytes: u64, total: u64, of: usize) -> usize {
    let share = u128::from(bytes) * of as u128 / u128::from(total.max(1));
    usize::try_from(share).unwrap_or(of).min(of)
}

fn waits(pending: &PendingStatus, num_shards: u32) -> String {
    let PendingStatus { call, shards_arrived, age_s, left_s } = pending;
    let (age, left) = (time(*age_s), time(*left_s));
    let shards = match *shards_arrived < num_shards {
        true => format!(", of {shards_arrived} of {num_shards} shards"),
        false => String::new(),
    };
    format!("{call} for {age}{shards}, {left} left")
}

#[cfg(test)]
mod tests {
    use weightcast::wire::ShardStatus;

    use super::*;

    fn replica(name: &str, state: &str) -> ReplicaStatus {
        ReplicaStatus {
            name: name.to_owned(),
            role: "rollout".to_owned(),
            state: state.to_owned(),
            num_shards: 1,
            shards: vec![ShardStatus { connected: true, ..ShardStatus::default() }],
            ..ReplicaStatus::default()
        }
    }

    fn names(model: &ModelStatus, sort: Sort, first: usize) -> Vec<String> {
        let rows = panel(model, sort, first, 80).rows;
        let name = |row: &Line<'_>| row.to_string().split_whitespace().next().map(str::to_owned);
        rows.iter().filter_map(name).collect()
    }

    #[test]
    fn replicas_are_in_the_order_that_is_asked_for() {
        let pending = Some(PendingStatus::default());
        let reading = Some(ReadingStatus::default());
        let stale =
            |name, seconds| ReplicaStatus { stale_s: Some(seconds), ..replica(name, "sealed") };
        let cut_off = ShardStatus::default();
        let model = ModelStatus {
            replicas: vec![
                stale("f", 1.0),
                ReplicaStatus { pending_call: pending, ..replica("d", "empty") },
                ReplicaStatus { reading, ..replica("c", "reading") },
                replica("e", "opening"),
                stale("g", 5.0),
                replica("b", "broken"),
                ReplicaStatus { shards: vec![cut_off], ..replica("a", "sealed") },
            ],
            ..ModelStatus::default()
        };
        let by_name = ["a", "b", "c", "d", "e", "f", "g"];
        assert_eq!(names(&model, Sort::Activity, 0), by_name);
        assert_eq!(names(&model, Sort::Name, 0), by_name);
        assert_eq!(names(&model, Sort::Staleness, 0), ["g", "f", "a", "b", "c", "d", "e"]);
        assert_eq!(names(&model, Sort::Name, 5), ["f", "g"]);
        assert_eq!(
            panel(&model, Sort::Name, 5, 80).title,
            "7 replicas, 1 of them reading, 5 above"
        );
    }

    #[test]
    fn a_row_says_what_is_held_and_what_is_done() {
        let held = ReplicaStatus {
            version: Some(6),
            versions_behind: Some(1),
            stale_s: Some(2.5),
            ..replica(&"n".repeat(NAME + 1), "sealed")
        };
        let reading = ReadingStatus {
            version: 7,
            arrived_bytes: 1_000_000,
            total_bytes: 4_000_000,
            bytes_per_s: Some(250_000),
            remaining_s: Some(12.0),
            age_s: None,
        };
        let beside = ReplicaStatus { version: Some(7), ..replica("b", "sealed") };
        let reads = ReplicaStatus { reading: Some(reading), ..replica("r", "reading") };
        let staged = ReplicaStatus { reading: Some(ReadingStatus::default()), ..beside.clone() };
        let call = "update(latest)".to_owned();
        let pending = PendingStatus { call, shards_arrived: 1, age_s: 3.2, left_s: 57.0 };
        let waits = ReplicaStatus {
            num_shards: 2,
            pending_call: Some(pending),
            versions_behind: Some(0),
            stale_s: Some(0.0),
            ..replica("w", "empty")
        };
        let replicas = vec![held, beside, reads, staged, waits];
        let model = ModelStatus { replicas, ..ModelStatus::default() };
        let text = |width| -> Vec<String> {
            let Panel { columns, rows, .. } = panel(&model, Sort::Name, 0, width);
            let lines = columns.iter().chain(&rows);
            lines.map(|row| row.to_string().trim_end().to_owned()).collect()
        };
        let name = "n".repeat(NAME);
        let pad = " ".repeat(NAME - 1);
        let expected = [
            format!("  replica{}  role     state    shards  version  behind", " ".repeat(NAME - 7)),
            format!("  b{pad}  rollout  sealed   1/1     7"),
            format!(
                "  b{pad}  rollout  sealed   1/1     7 -> 0                \
                 ....................   0 %                            0 B of 0 B"
            ),
            format!("  {name}  rollout  sealed   1/1     6        1 for 2.5 s"),
            format!(
                "  r{pad}  rollout  reading  1/1     -> 7                  \
                 #####...............  25 %  250.00 KB/s    12 s left  1.00 MB of 4.00 MB"
            ),
            format!(
                "  w{pad}  rollout  empty    1/2     -                     \
                 update(latest) for 3.2 s, of 1 of 2 shards, 57 s left"
            ),
        ];
        let longest = expected[4].len();
        assert_eq!(text(longest), expected);
        let without = expected[4].strip_suffix("  1.00 MB of 4.00 MB").map(str::to_owned);
        assert_eq!(Some(&text(longest - 1)[4]), without.as_ref(), "no half of a number");
        assert!(text(NARROW - 1)[4].ends_with("  ##......  25 %"), "a short bar");
    }

    #[test]
    fn a_share_is_never_more_than_all() {
        for (bytes, total, expected) in [
            (0, 0, 0),
            (0, 7, 0),
            (6, 7, 17),
            (7, 7, 20),
            (8, 7, 20),
            (u64::MAX, 1, 20),
            (u64::MAX - 1, u64::MAX, 19),
            (u64::MAX, u64::MAX, 20),
        ] {
            assert_eq!(share(bytes, total, 20), expected, "{bytes} of {total}");
        }
    }
}
