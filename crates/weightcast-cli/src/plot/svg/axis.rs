//! Where values lie along an axis, and at which of them there are ticks.

use crate::plot::numbers::{decimals, number};
use crate::plot::picture::Spacing;

/// Values beyond are drawn as these: nothing here overflows.
const LEAST: f64 = 1e-300;
const MOST: f64 = 1e300;

/// An axis with its ends and its ticks.
#[derive(Debug)]
pub(super) struct AxisScale {
    spacing: Spacing,
    /// The ends; of a logarithmic axis the decadic logarithms of these.
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    /// Of the labels of a linear axis.
    decimals: usize,
}

impl AxisScale {
    /// An axis that holds all values, with about as many ticks.
    pub(super) fn of(spacing: Spacing, values: impl Iterator<Item = f64>, about: usize) -> Self {
        let mut values: Vec<f64> = values.filter(|value| value.is_finite()).collect();
        values.iter_mut().for_each(|value| *value = value.clamp(-MOST, MOST));
        values.sort_by(f64::total_cmp);
        match spacing {
            Spacing::Linear => Self::linear(&values, about),
            Spacing::Fitted => Self::linear(&values, about).fitted(&values),
            Spacing::Logarithmic => Self::logarithmic(&positive(values), about),
            Spacing::Doubling => Self::doubling(positive(values)),
        }
    }

    /// Of values in order; zero is always on it.
    fn linear(values: &[f64], about: usize) -> Self {
        let low = values.first().map_or(0.0, |low| low.min(0.0));
        let high = values.last().map_or(0.0, |high| high.max(0.0));
        let high = if high - low < LEAST { low + 1.0 } else { high };
        let step = round_up((high - low) / about.max(1) as f64);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first) as u32;
        Self {
            spacing: Spacing::Linear,
            low: first * step,
            high: last * step,
            ticks: (0..=count).map(|place| (first + f64::from(place)) * step).collect(),
            decimals: (-step.log10().floor()).clamp(0.0, 9.0) as usize,
        }
    }

    /// The same, ending at the last value, where there is a value above zero.
    fn fitted(mut self, values: &[f64]) -> Self {
        if let Some(last) = values.last().filter(|last| **last >= LEAST) {
            self.high = *last;
            self.ticks.retain(|tick| tick <= last);
        }
        self
    }

    /// Of positive values in order: from one of 1, 2, 5, 10, ... to another.
    fn logarithmic(values: &[f64], about: usize) -> Self {
        let low = values.first().map_or(0.0, |low| round_down(*low).log10());
        let high = values.last().map_or(1.0, |high| round_up(*high).log10());
        // Twice the low end at least.
        let high = high.max(low + 2_f64.log10());
        let within = |tick: &f64| (low - 1e-6..=high + 1e-6).contains(&tick.log10());
        let decades =
            || (low.floor() as i32..=high.ceil() as i32).map(|decade| 10_f64.powi(decade));
        let fine = decades().flat_map(|decade| [decade, 2.0 * decade, 5.0 * decade]);
        let mut ticks: Vec<f64> = fine.filter(within).collect();
        if ticks.len() > about {
            let whole: Vec<f64> = decades().filter(within).collect();
            ticks = whole.iter().copied().step_by(whole.len().div_ceil(about.max(1))).collect();
        }
        Self { spacing: Spacing::Logarithmic, low, high, ticks, decimals: 0 }
    }

    /// Of positive values in order: a tick at each, and some room beside the outer ones.
    fn doubling(mut values: Vec<f64>) -> Self {
        values.dedup();
        let low = values.first().map_or(0.0, |low| low.log10());
        let high = values.last().map_or(1.0, |high| high.log10());
        let beside = 0.04 * (high - low).max(0.3);
        let (low, high) = (low - beside, high + beside);
        Self { spacing: Spacing::Doubling, low, high, ticks: values, decimals: 0 }
    }

    /// Where a value lies: 0 at the low end, 1 at the high one; `None` for what the axis cannot show.
    pub(super) fn share(&self, value: f64) -> Option<f64> {
        if !value.is_finite() {
            return None;
        }
        let value = value.clamp(-MOST, MOST);
        let place = match self.spacing {
            Spacing::Linear | Spacing::Fitted => value,
            _ if value < LEAST => return None,
            _ => value.log10(),
        };
        Some(((place - self.low) / (self.high - self.low)).clamp(0.0, 1.0))
    }

    /// Each tick's place and label.
    pub(super) fn ticks(&self) -> impl Iterator<Item = (f64, String)> {
        self.ticks.iter().filter_map(|tick| Some((self.share(*tick)?, self.label(*tick))))
    }

    fn label(&self, tick: f64) -> String {
        match self.spacing {
            Spacing::Linear | Spacing::Fitted if self.decimals > 6 => number(tick),
            Spacing::Linear | Spacing::Fitted => decimals(tick, self.decimals),
            _ if tick >= 1.0 && tick.fract() == 0.0 => decimals(tick, 0),
            _ if tick < 0.001 => number(tick),
            _ => number(tick).trim_end_matches('0').to_owned(),
        }
    }
}

fn positive(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().filter(|value| *value >= LEAST).collect()
}

/// Of 1, 2, 5, 10, 20, ...: the first that is not below the value.
fn round_up(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let share = [1.0, 2.0, 5.0].into_iter().find(|share| value <= share * decade * (1.0 + 1e-9));
    share.unwrap_or(10.0) * decade
}

/// Of 1, 2, 5, 10, 20, ...: the last that is not above the value.
fn round_down(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let share = [5.0, 2.0, 1.0].into_iter().find(|share| share * decade <= value * (1.0 + 1e-9));
    share.unwrap_or(0.5) * decade
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: &AxisScale) -> Vec<String> {
        scale.ticks().map(|(_, label)| label).collect()
    }

    fn of(spacing: Spacing, values: &[f64], about: usize) -> AxisScale {
        AxisScale::of(spacing, values.iter().copied(), about)
    }

    #[test]
    fn a_linear_axis_goes_from_zero_in_round_steps() {
        for (values, wanted) in [
            (&[0.31, 0.94][..], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"][..]),
            (&[119.0], &["0", "50", "100", "150"]),
            (&[-0.5, 2.0], &["-0.5", "0.0", "0.5", "1.0", "1.5", "2.0"]),
            (&[4_096.0, 16_384.0], &["0", "5,000", "10,000", "15,000", "20,000"]),
            (&[0.0], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
            (&[], &["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        ] {
            assert_eq!(labels(&of(Spacing::Linear, values, 5)), wanted, "{values:?}");
        }
    }

    #[test]
    fn a_fitted_axis_ends_at_the_last_value() {
        let steps = of(Spacing::Fitted, &[0.0, 119.0], 5);
        assert_eq!(labels(&steps), ["0", "50", "100"]);
        assert_eq!([0.0, 59.5, 119.0].map(|n| steps.share(n)), [Some(0.0), Some(0.5), Some(1.0)]);
        for values in [&[][..], &[0.0], &[-2.0, -1.0]] {
            let (fitted, linear) = (of(Spacing::Fitted, values, 5), of(Spacing::Linear, values, 5));
            assert_eq!(labels(&fitted), labels(&linear), "{values:?}");
        }
    }

    #[test]
    fn a_logarithmic_axis_has_ticks_at_1_2_5_or_at_decades() {
        for (values, wanted) in [
            (&[1.4, 23.5][..], &["1", "2", "5", "10", "20", "50"][..]),
            (&[0.02, 7.7], &["0.1", "1", "10"]),
            (&[1.40, 304.0], &["1", "10", "100"]),
            (&[5.0], &["5", "10"]),
            (&[0.0, -3.0], &["1", "2", "5", "10"]),
        ] {
            assert_eq!(labels(&of(Spacing::Logarithmic, values, 6)), wanted, "{values:?}");
        }
        let wide = of(Spacing::Logarithmic, &[1e-200, 1e200], 6);
        assert!((2..=6).contains(&wide.ticks().count()), "{wide:?}");
    }

    #[test]
    fn values_lie_between_the_ends_in_their_order() {
        let readers = of(Spacing::Doubling, &[16.0, 1.0, 2.0, 4.0, 8.0, 16.0], 3);
        assert_eq!(labels(&readers), ["1", "2", "4", "8", "16"]);
        let places: Vec<f64> = [1.0, 2.0, 4.0, 8.0, 16.0].map(|n| readers.share(n).unwrap()).into();
        for pair in places.windows(2) {
            assert!((pair[1] - pair[0] - 0.23).abs() < 0.01, "doubling is a step: {places:?}");
        }
        let linear = of(Spacing::Linear, &[10.0], 5);
        assert_eq!([0.0, 2.5, 10.0].map(|n| linear.share(n)), [Some(0.0), Some(0.25), Some(1.0)]);
        let decades = of(Spacing::Logarithmic, &[1.0, 100.0], 5);
        assert_eq!([1.0, 10.0, 100.0].map(|n| decades.share(n)), [Some(0.0), Some(0.5), Some(1.0)]);
        assert_eq!([0.0, -1.0, f64::NAN].map(|n| decades.share(n)), [None; 3]);
    }

    /// Whatever the numbers are: few ticks, all places within the axis.
    #[test]
    fn no_number_breaks_an_axis() {
        let odd =
            [f64::MAX, f64::MIN, f64::MIN_POSITIVE, 5e-324, -0.0, f64::NAN, f64::INFINITY, 1.0];
        for spacing in [Spacing::Linear, Spacing::Fitted, Spacing::Logarithmic, Spacing::Doubling] {
            for first in odd {
                for second in odd {
                    let scale = of(spacing, &[first, second], 6);
                    let ticks: Vec<_> = scale.ticks().collect();
                    assert!(ticks.len() <= 13, "{spacing:?} {first} {second}: {ticks:?}");
                    let shares = [first, second].map(|value| scale.share(value).unwrap_or(0.0));
                    let places = ticks.iter().map(|(place, _)| *place).chain(shares);
                    let within = places.into_iter().all(|place| (0.0..=1.0).contains(&place));
                    assert!(within, "{spacing:?} {first} {second}: {scale:?}");
                }
            }
        }
    }
}
