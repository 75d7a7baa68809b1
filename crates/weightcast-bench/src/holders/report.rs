//! Measured updates beside the ideal, beside one source, and how even the holders' parts are.

use std::fmt::Write;

use serde::Serialize;

use super::turns::{HoldersSetting, ReadTimes};
use crate::base::machine::Machine;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct HoldersReport {
    machine: Machine,
    bytes: u64,
    /// Of the reader, in Mbit/s.
    rate_mbit: u32,
    pub(crate) rows: Vec<HoldersRow>,
    pub(crate) seconds: f64,
}

/// One number of holders.
#[derive(Debug, Serialize)]
pub(crate) struct HoldersRow {
    links: &'static str,
    /// At which each holder sends.
    rates_mbit: Vec<u32>,
    /// Over the narrowest links.
    ideal_s: f64,
    /// The same from the fastest holder alone.
    fastest_alone_s: f64,
    /// As a server does by default.
    together: ReadTimes,
    /// From the one source that a server would choose.
    alone: ReadTimes,
    /// The ideal divided by the update.
    of_ideal: f64,
    /// How much faster the update is than from the fastest holder alone would be.
    speedup: f64,
    /// The largest distance of a holder's bytes from its part by the rates, as a share of that part.
    imbalance: f64,
}

impl HoldersRow {
    pub(crate) fn new(
        links: &'static str,
        setting: &HoldersSetting,
        together: ReadTimes,
        alone: ReadTimes,
    ) -> Self {
        let (ideal_s, fastest_alone_s) = (setting.ideal_s(), setting.fastest_alone_s());
        Self {
            links,
            rates_mbit: setting.rates.clone(),
            ideal_s,
            fastest_alone_s,
            of_ideal: ideal_s / together.update_s,
            speedup: fastest_alone_s / together.update_s,
            imbalance: imbalance(&setting.rates, &together.given),
            together,
            alone,
        }
    }
}

/// How far holders are from giving by their rates.
fn imbalance(rates: &[u32], given: &[u64]) -> f64 {
    let (all, bytes) = (rates.iter().sum::<u32>(), given.iter().sum::<u64>());
    let off = rates.iter().zip(given).map(|(rate, given)| {
        let part = bytes as f64 * f64::from(*rate) / f64::from(all);
        (*given as f64 / part - 1.0).abs()
    });
    off.fold(0.0, f64::max)
}

impl HoldersReport {
    pub(crate) fn new(machine: Machine, bytes: u64, rate_mbit: u32) -> Self {
        Self { machine, bytes, rate_mbit, rows: Vec::new(), seconds: 0.0 }
    }

    /// Whether all content of all measurements was right.
    pub(crate) fn verified(&self) -> bool {
        self.rows.iter().all(|row| row.together.content_ok && row.alone.content_ok)
    }

    /// The report as text.
    pub(crate) fn table(&self) -> String {
        let Machine { cpu, cpus, kernel } = &self.machine;
        let mut table = format!(
            "{cpus} x {cpu}, Linux {kernel}; {:.1} MB a replica, the reader at {} Mbit/s\n\n\
             holders  links    update    ideal   of ideal  beside the fastest alone  one source  off balance\n",
            self.bytes as f64 / 1e6,
            self.rate_mbit
        );
        for row in &self.rows {
            let _ = writeln!(
                table,
                "{:>7}  {:<8} {:>6.3} s {:>6.3} s {:>9.2} {:>24.2}x {:>9.3} s {:>11.1}%",
                row.rates_mbit.len(),
                row.links,
                row.together.update_s,
                row.ideal_s,
                row.of_ideal,
                row.speedup,
                row.alone.update_s,
                100.0 * row.imbalance
            );
        }
        let _ = writeln!(table, "\n{:.0} s in all", self.seconds);
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_that_give_by_their_rates_are_in_balance() {
        assert_eq!(imbalance(&[10, 30], &[100, 300]), 0.0);
        assert!((imbalance(&[10, 10], &[90, 110]) - 0.1).abs() < 1e-9);
        assert_eq!(imbalance(&[10, 10], &[0, 200]), 1.0);
    }
}
