//! Measured values, beside the ideal and beside the comparison in which all groups read from the
//! trainer.

use std::fmt::Write;

use serde::Serialize;

use super::killing::Killed;
use super::predicted::PredictedSpread;
use super::seeding::Seeded;
use super::spread::{FanoutSetting, SpreadTimes};
use crate::base::machine::Machine;
use crate::emulated::worker::TENSORS;

/// Aim: the total stall is at most this multiple of the ideal.
const AIM: f64 = 1.15;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct FanoutReport {
    machine: Machine,
    bytes: u64,
    rate_mbit: u32,
    pub(crate) spreads: Vec<SpreadComparison>,
    pub(crate) killed: Vec<Killed>,
    pub(crate) seeded: Vec<Seeded>,
    pub(crate) seconds: f64,
}

/// One number of readers.
#[derive(Debug, Serialize)]
pub(crate) struct SpreadComparison {
    readers: usize,
    shards: usize,
    /// Readers on one host.
    ranks: usize,
    /// How many of the 16 tensors all shards of a group hold, on one host.
    replicated: Option<u64>,
    datacentres: usize,
    /// Sum of the stalls if every reader got 0.956 of the set rate, all at once.
    ideal_sum_s: f64,
    ideal_max_s: f64,
    stack: SpreadTimes,
    /// The comparison in which all groups read from the trainer.
    naive: Option<SpreadTimes>,
    /// Total stall divided by the ideal.
    ratio: f64,
    /// What `weightcast plan` predicts of `stack`.
    predicted: PredictedSpread,
}

impl SpreadComparison {
    pub(crate) fn new(
        setting: &FanoutSetting,
        stack: SpreadTimes,
        naive: Option<SpreadTimes>,
        predicted: PredictedSpread,
    ) -> Self {
        Self {
            readers: setting.readers,
            shards: setting.shards,
            ranks: setting.ranks,
            replicated: setting.replicated,
            datacentres: setting.datacentres,
            ideal_sum_s: setting.ideal_sum_s(),
            ideal_max_s: setting.ideal_max_s(),
            ratio: stack.sum_s / setting.ideal_sum_s(),
            stack,
            naive,
            predicted,
        }
    }
}

impl FanoutReport {
    pub(crate) fn new(machine: Machine, bytes: u64, rate_mbit: u32) -> Self {
        let (spreads, killed, seeded) = (Vec::new(), Vec::new(), Vec::new());
        Self { machine, bytes, rate_mbit, spreads, killed, seeded, seconds: 0.0 }
    }

    /// Whether all content of all measurements was right.
    pub(crate) fn verified(&self) -> bool {
        let mut all =
            self.spreads.iter().flat_map(|s| [Some(&s.stack), s.naive.as_ref()]).flatten();
        all.all(|spread| spread.content_ok)
            && self.killed.iter().all(|killed| killed.content_ok)
            && self.seeded.iter().all(|seeded| seeded.content_ok)
    }

    /// The report as text.
    pub(crate) fn table(&self) -> String {
        let Machine { cpu, cpus, kernel } = &self.machine;
        let mut text = format!(
            "{cpu}, {cpus} CPUs, Linux {kernel}; {:.1} MB a replica, {} Mbit/s a host\n",
            self.bytes as f64 / 1e6,
            self.rate_mbit
        );
        self.spread_rows(&mut text);
        self.killed_rows(&mut text);
        self.seeded_rows(&mut text);
        let verified = if self.verified() { "every byte verified" } else { "UNVERIFIED BYTES" };
        let _ = writeln!(text, "\n{verified}; {:.0} s", self.seconds);
        text
    }

    fn spread_rows(&self, text: &mut String) {
        if self.spreads.is_empty() {
            return;
        }
        let _ = writeln!(
            text,
            "\nseconds from the publish to the commits, medians of turns\n{:>7}{:>7}{:>11}{:>10}\
             {:>7}{:>10}{:>10}{:>9}{:>8}{:>12}{:>9}{:>10}{:>7}{:>9}{:>9}",
            "readers",
            "shards",
            "ideal sum",
            "sum",
            "ratio",
            "ideal max",
            "max",
            "planned",
            "CPU s",
            "naive sum",
            "CPU s",
            "crossings",
            "a host",
            "entered",
            "planned"
        );
        for s in &self.spreads {
            let (naive, naive_cpu) = match &s.naive {
                Some(naive) => (format!("{:.2}", naive.sum_s), format!("{:.2}", naive.cpu_s)),
                None => ("-".to_owned(), "-".to_owned()),
            };
            let crossings = match s.datacentres {
                1 => "-".to_owned(),
                _ => format!("{:.2}", s.stack.crossed),
            };
            let verdict = if s.ratio <= AIM { "" } else { "  MISSES 1.15" };
            let _ = writeln!(
                text,
                "{:>7}{:>7}{:>11.2}{:>10.2}{:>7.2}{:>10.2}{:>10.2}{:>9}{:>8.2}{naive:>12}{naive_cpu:>9}\
                 {crossings:>10}{:>7}{:>9.3}{:>9.3}{verdict}",
                s.readers,
                s.shards,
                s.ideal_sum_s,
                s.stack.sum_s,
                s.ratio,
                s.ideal_max_s,
                s.stack.max_s,
                seconds_or_dash(s.predicted.max_s),
                s.stack.cpu_s,
                s.ranks,
                s.stack.entered,
                s.predicted.entered
            );
        }
    }

    fn seeded_rows(&self, text: &mut String) {
        for seeded in &self.seeded {
            let _ = writeln!(
                text,
                "{} readers of {} shards, half of them far away with offload seeding: {:.2} copies \
                 cross in {:.2} s (ideal {:.2} s); {} updates meanwhile, the longest {:.3} s; the \
                 update that reads the seed {:.2} s, the longest {:.2} s (ideal {:.2} s); near the \
                 trainer {:.2} s",
                seeded.readers,
                seeded.shards,
                seeded.crossed,
                seeded.crossing_s,
                seeded.ideal_crossing_s,
                seeded.polls,
                seeded.longest_poll_s,
                seeded.consume_s,
                seeded.longest_consume_s,
                seeded.ideal_s,
                seeded.near_s
            );
        }
    }

    fn killed_rows(&self, text: &mut String) {
        for killed in &self.killed {
            let in_flight = killed.victims.iter().filter(|victim| victim.in_flight).count();
            let _ = writeln!(
                text,
                "{} readers of {} shards{}, a source killed at {} %: all others finish after {:.2} s, \
                 undisturbed {:.2} s: {:.2} s more (ideal of one transfer: {:.2} s; planned: {} s); \
                 {in_flight} of {} victims were still receiving; {:.3} copies entered each \
                 survivors' host of {} (planned: {:.3})",
                killed.readers,
                killed.shards,
                on_one_host(killed.replicated),
                killed.percent,
                killed.max_s,
                killed.undisturbed_s,
                killed.extra_s,
                killed.ideal_s,
                seconds_or_dash(killed.predicted.max_s),
                killed.victims.len(),
                killed.entered,
                killed.ranks,
                killed.predicted.entered
            );
        }
    }
}

fn seconds_or_dash(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"))
}

/// How the shards of a group hold the tensors, if they share a host.
fn on_one_host(replicated: Option<u64>) -> String {
    replicated.map_or_else(String::new, |whole| {
        format!(" on one host, {whole} of {TENSORS} tensors whole in each")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(content_ok: bool) -> SpreadTimes {
        let (sum_s, max_s, cpu_s, crossed) = (4.0, 2.0, 1.0, 1.0);
        let entered = 1.25;
        SpreadTimes { sum_s, max_s, cpu_s, crossed, entered, content_ok, turns: Vec::new() }
    }

    fn predicted(max_s: Option<f64>) -> PredictedSpread {
        PredictedSpread { entered: 1.125, max_s }
    }

    fn compared(
        setting: &FanoutSetting,
        stack: SpreadTimes,
        naive: Option<SpreadTimes>,
    ) -> SpreadComparison {
        let planned = (setting.datacentres == 1).then_some(1.75);
        SpreadComparison::new(setting, stack, naive, predicted(planned))
    }

    fn setting() -> FanoutSetting {
        FanoutSetting {
            readers: 4,
            shards: 2,
            bytes: 1 << 20,
            rate: 100,
            datacentres: 1,
            slow: 50,
            fanout: 2,
            ranks: 4,
            replicated: None,
            repeat: 1,
        }
    }

    fn killed(content_ok: bool) -> Killed {
        Killed {
            readers: 4,
            shards: 2,
            percent: 50,
            undisturbed_s: 1.0,
            max_s: 2.0,
            extra_s: 1.0,
            ideal_s: 1.0,
            ranks: 2,
            replicated: Some(8),
            entered: 1.25,
            predicted: predicted(Some(1.5)),
            victims: Vec::new(),
            content_ok,
        }
    }

    #[test]
    fn one_wrong_byte_anywhere_is_said() {
        for wrong in 0..6 {
            let ok = |place| place != wrong;
            let machine = crate::base::machine::machine();
            let mut report = FanoutReport::new(machine, 1 << 20, 100);
            for (stack, naive) in [(0, Some(1)), (2, None), (3, None)] {
                let naive = naive.map(|place| spread(ok(place)));
                report.spreads.push(compared(&setting(), spread(ok(stack)), naive));
            }
            report.killed.push(killed(ok(4)));
            assert_eq!(report.verified(), wrong == 5, "{wrong}");
            let said = if wrong == 5 { "every byte verified" } else { "UNVERIFIED BYTES" };
            assert!(report.table().contains(said));
        }
    }

    /// Each number stands below its own name.
    #[test]
    fn readers_are_told_with_their_own_numbers() {
        let mut report = FanoutReport::new(crate::base::machine::machine(), 2_500_000, 100);
        assert!(!report.table().contains("readers"), "nothing was spread");
        let far = FanoutSetting { readers: 6, shards: 3, datacentres: 2, ..setting() };
        let naive = SpreadTimes { sum_s: 9.0, cpu_s: 8.0, ..spread(true) };
        report.spreads.push(compared(
            &far,
            SpreadTimes { crossed: 1.5, ..spread(true) },
            Some(naive),
        ));
        report.spreads.push(compared(&setting(), spread(true), None));
        report.killed.push(killed(true));
        let text = report.table();
        let row = |number: usize| -> Vec<&str> {
            let mut after = text.lines().skip_while(|line| !line.contains("ideal sum"));
            after.nth(number).expect("a row").split_ascii_whitespace().collect()
        };
        let two = |number: f64| format!("{number:.2}");
        let ratio = |of: &FanoutSetting| two(4.0 / of.ideal_sum_s());
        let (sum, most) = (two(far.ideal_sum_s()), two(far.ideal_max_s()));
        let wanted = [
            "6",
            "3",
            &sum,
            "4.00",
            &ratio(&far),
            &most,
            "2.00",
            "-",
            "1.00",
            "9.00",
            "8.00",
            "1.50",
            "4",
            "1.250",
            "1.125",
        ];
        assert_eq!(row(1)[..15], wanted);
        let (sum, most) = (two(setting().ideal_sum_s()), two(setting().ideal_max_s()));
        let wanted = [
            "4",
            "2",
            &sum,
            "4.00",
            &ratio(&setting()),
            &most,
            "2.00",
            "1.75",
            "1.00",
            "-",
            "-",
            "-",
            "4",
            "1.250",
            "1.125",
        ];
        assert_eq!(row(2)[..15], wanted);
        let said = "4 readers of 2 shards on one host, 8 of 16 tensors whole in each, a source killed at \
                    50 %: all others finish after 2.00 s, undisturbed 1.00 s: 1.00 s more (ideal of one \
                    transfer: 1.00 s; planned: 1.50 s); 0 of 0 victims were still receiving; 1.250 copies \
                    entered each survivors' host of 2 (planned: 1.125)";
        assert!(text.contains(said), "{text}");
        assert!(text.contains("; 2.5 MB a replica, 100 Mbit/s a host"), "{text}");
        let json = serde_json::to_string(&report).expect("JSON");
        let svg = weightcast_cli::svg_of(&json).expect("a report that can be drawn");
        for title in ["Total stall, 3 shards, 2 datacentres", "Slowest reader, 2 shards"] {
            assert!(svg.contains(&format!(">{title}</text>")), "{svg}");
        }
        assert!(svg.contains("killed at 50 %"), "{svg}");
    }

    #[test]
    fn what_misses_the_aim_is_said() {
        let ideal = setting().ideal_sum_s();
        for (share, misses) in [(1.0, false), (1.149, false), (1.16, true)] {
            let stack = SpreadTimes { sum_s: ideal * share, ..spread(true) };
            let mut report = FanoutReport::new(crate::base::machine::machine(), 1 << 20, 100);
            report.spreads.push(compared(&setting(), stack, None));
            assert_eq!(report.table().contains("MISSES"), misses, "{share}");
        }
    }
}
