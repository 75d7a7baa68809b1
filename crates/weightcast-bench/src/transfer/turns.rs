//! One case by one way: limits and the full stack take turns, so that a drift of the machine
//! strikes both.

use anyhow::Result;
use weightcast::transport::Way;
use weightcast::transport::bench::{Slices, SocketShape};

use super::child::Sources;
use super::limits::{Limit, LimitProbe};
use super::report::{Floor, LimitTimes, StackTimes, WayTimes, gb_per_s};
use super::stack::{TargetReplica, Update};
use crate::base::measure::{MemoryPeak, median};
use crate::weights::cases::{Floors, TransferCase};
use crate::weights::memory::KnownMemory;

/// What the turns of a case need.
pub(crate) struct CaseTurns<'a> {
    pub(crate) server: &'a str,
    pub(crate) model: &'a str,
    pub(crate) case: &'a TransferCase,
    pub(crate) limits: &'a LimitProbe,
    /// The raw sockets that TCP is set beside.
    pub(crate) sockets: SocketShape,
    pub(crate) targets: &'a [KnownMemory],
    pub(crate) runs: usize,
}

/// The results of the stack's updates.
#[derive(Default)]
struct Runs {
    seconds: Vec<f64>,
    read_s: Vec<f64>,
    seal_s: Vec<f64>,
    cpu_s: f64,
    extra: Option<u64>,
    verified: u64,
    content_ok: bool,
}

impl CaseTurns<'_> {
    /// Measures a way, if it is possible here.
    pub(crate) fn measure(&self, way: Way, sources: &mut Sources) -> Result<WayTimes> {
        let name = name(way);
        if let (Way::Direct, Some(why)) = (way, self.limits.no_direct()) {
            let unavailable = Some(why.to_owned());
            let (limits, floors) = (Vec::new(), Vec::new());
            return Ok(WayTimes { way: name, unavailable, stack: None, limits, floors });
        }
        let target = TargetReplica::open(self.server, self.model, self.targets, way)?;
        let mut runs = Runs { content_ok: true, ..Runs::default() };
        // The first update connects and plans, so it is reported separately.
        self.update(&target, sources, &mut runs)?;
        let first_s = runs.seconds[0];
        runs = Runs { content_ok: runs.content_ok, ..Runs::default() };
        let mut whole = Runs { content_ok: true, ..Runs::default() };
        let names = limits_of(way, self.sockets, self.case.slices());
        let mut limits = vec![(Vec::new(), 0.0); names.len()];
        for _ in 0..self.runs {
            // Limits run before new content is published: bytes that a limit leaves in the target
            // can't pass for the new content. The order is reversed, so that the limit that counts
            // runs last, next to the update.
            for (limit, (seconds, cpu_s)) in names.iter().zip(&mut limits).rev() {
                let cpu = sources.cpu_seconds()?;
                seconds.push(self.limits.take(*limit)?);
                *cpu_s += sources.cpu_seconds()? - cpu;
            }
            if self.case.freezes {
                // Until a version changes everything: that of the next number changes a tenth.
                while !self.update(&target, sources, &mut whole)?.is_multiple_of(2) {}
            }
            self.update(&target, sources, &mut runs)?;
        }
        target.close();
        runs.content_ok &= whole.content_ok;
        let bytes = self.bytes();
        let everything = self.case.freezes.then(|| {
            let last = whole.seconds.split_off(whole.seconds.len() - self.runs);
            let cpu_s = whole.cpu_s / (whole.seconds.len() + self.runs) as f64;
            LimitTimes::new("all changed".to_owned(), bytes, last, cpu_s, &runs.seconds)
        });
        let limits: Vec<_> = names
            .iter()
            .zip(limits)
            .map(|(limit, (all_s, cpu_s))| {
                let cpu_s = cpu_s / self.runs as f64;
                LimitTimes::new(limit.name(), bytes, all_s, cpu_s, &runs.seconds)
            })
            .chain(everything)
            .collect();
        let floors = floors(&self.case.floors, way, &limits, median(&runs.seconds));
        let stack = Some(runs.times(bytes, first_s));
        Ok(WayTimes { way: name, unavailable: None, stack, limits, floors })
    }

    fn bytes(&self) -> u64 {
        self.targets.iter().map(KnownMemory::bytes).sum()
    }

    /// Publishes new content, updates to it, and compares every byte. Returns its version.
    fn update(
        &self,
        target: &TargetReplica<'_>,
        sources: &mut Sources,
        runs: &mut Runs,
    ) -> Result<u64> {
        let (version, published) = sources.publish(true)?;
        let cpu = sources.cpu_seconds()?;
        let peak = MemoryPeak::start();
        let Update { seconds, read_s, bytes, verified } = target.update(version)?;
        let growth = peak.and_then(|peak| peak.growth());
        runs.cpu_s += sources.cpu_seconds()? - cpu;
        runs.seconds.push(seconds);
        runs.read_s.push(read_s);
        runs.seal_s.push(published.seal_s);
        runs.extra = runs.extra.max(growth);
        let whole = verified == bytes && bytes == self.bytes();
        runs.looked_at(verified, whole && target.holds(version));
        Ok(version)
    }
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Shared => "shared",
        Way::Direct => "direct",
        _ => "tcp",
    }
}

/// The promises of a way, beside what was reached.
fn floors(of: &Floors, way: Way, limits: &[LimitTimes], seconds: f64) -> Vec<Floor> {
    let share = match way {
        Way::Shared => of.shared,
        Way::Direct => of.direct,
        _ => of.tcp,
    };
    let of_limit = |(wanted, limit): (f64, &LimitTimes)| {
        Floor::at_least(format!("of {}", limit.limit), wanted, limit.ratio)
    };
    // The first limit is the one that counts.
    let share = share.zip(limits.first()).map(of_limit);
    // Behind it, those that do not digest: the faster of them counts.
    let ratios = limits.iter().skip(1).take(2).map(|limit| limit.ratio);
    let faster = of.shared_of_memcpy.filter(|_| way == Way::Shared).map(|wanted| {
        let got = ratios.fold(f64::INFINITY, f64::min);
        Floor::at_least("of the faster memcpy of shared pages".to_owned(), wanted, got)
    });
    // Behind the plain sockets, the same ones with digests.
    let digested = of.tcp_digested.filter(|_| way == Way::Tcp).zip(limits.get(1)).map(of_limit);
    let time = if way == Way::Shared { of.shared_seconds } else { of.seconds };
    let time = time.map(|s| Floor::below("seconds".to_owned(), s, seconds));
    share.into_iter().chain(faster).chain(digested).chain(time).collect()
}

/// The limits of a way. The promise is about the first one.
fn limits_of(way: Way, sockets: SocketShape, slices: Option<Slices>) -> Vec<Limit> {
    let memcpy = Limit::Memcpy { threads: 2 };
    match way {
        Way::Shared => {
            let memcpy = [Limit::SharedMemcpy { threads: 2 }, Limit::SharedLibc { threads: 2 }];
            let sliced = slices.map(|slices| Limit::FusedSlices { threads: 2, slices });
            [Limit::Fused { threads: 2 }].into_iter().chain(memcpy).chain(sliced).collect()
        }
        Way::Tcp => vec![Limit::Sockets(sockets), Limit::DigestedSockets(sockets), memcpy],
        _ => {
            let sliced = slices.map(|slices| Limit::ReadvSlices { threads: 2, slices });
            let bare = [Limit::Readv { threads: 2 }, Limit::Readv { threads: 1 }];
            bare.into_iter().chain(sliced).chain([memcpy]).collect()
        }
    }
}

impl Runs {
    /// Adds a run. A run with wrong content is not made good by later ones.
    fn looked_at(&mut self, verified: u64, right: bool) {
        self.verified = verified;
        self.content_ok &= right;
    }

    fn times(self, bytes: u64, first_s: f64) -> StackTimes {
        let median_s = median(&self.seconds);
        StackTimes {
            median_s,
            gb_per_s: gb_per_s(bytes, median_s),
            read_median_s: median(&self.read_s),
            first_s,
            seal_median_s: median(&self.seal_s),
            cpu_s: self.cpu_s / self.seconds.len() as f64,
            extra_bytes: self.extra,
            verified_bytes: self.verified,
            content_ok: self.content_ok,
            all_s: self.seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_held_to_its_own_promise() {
        let limit =
            |name: &str, all_s| LimitTimes::new(name.to_owned(), 1_000, vec![all_s], 0.0, &[2.0]);
        let limits = [limit("first", 1.0), limit("second", 4.0)];
        let of = Floors {
            shared: Some(0.5),
            shared_of_memcpy: Some(1.5),
            direct: Some(0.4),
            tcp: Some(0.6),
            tcp_digested: Some(2.5),
            shared_seconds: Some(2.0),
            seconds: Some(3.0),
        };
        let told = |of: &Floors, way| -> Vec<(String, f64, f64, bool)> {
            let floors = floors(of, way, &limits, 2.5).into_iter();
            floors.map(|floor| (floor.what, floor.wanted, floor.got, floor.pass)).collect()
        };
        let time = ("seconds".to_owned(), 3.0, 2.5, true);
        let share = |wanted, pass| ("of first".to_owned(), wanted, 0.5, pass);
        assert_eq!(told(&of, Way::Direct), [share(0.4, true), time.clone()]);
        let digested = ("of second".to_owned(), 2.5, 2.0, false);
        assert_eq!(told(&of, Way::Tcp), [share(0.6, false), digested, time]);
        let faster = ("of the faster memcpy of shared pages".to_owned(), 1.5, 2.0, true);
        let sooner = ("seconds".to_owned(), 2.0, 2.5, false);
        assert_eq!(told(&of, Way::Shared), [share(0.5, true), faster, sooner]);
        assert_eq!(told(&Floors::default(), Way::Tcp), []);
    }

    #[test]
    fn a_way_is_held_to_its_own_limit_first() {
        let slices = Some(Slices::default());
        for (streams, piece, shape) in [(2, 1 << 20, "2 x 1 MiB"), (4, 256 << 10, "4 x 256 KiB")] {
            let sockets = SocketShape { streams, piece };
            let names = |way, slices| -> Vec<String> {
                limits_of(way, sockets, slices).into_iter().map(Limit::name).collect()
            };
            let pair = format!("best socket pair ({shape})");
            let tcp = [&*pair, &format!("{pair} with digests"), "memcpy x2"];
            assert_eq!(names(Way::Tcp, None), tcp);
            assert_eq!(names(Way::Tcp, slices), tcp);
            let shared = [
                "copy and digest x2",
                "memcpy of shared pages x2",
                "libc memcpy of shared pages x2",
            ];
            assert_eq!(names(Way::Shared, None), shared);
            let cut = [&shared[..], &["copy and digest x2 sliced"]].concat();
            assert_eq!(names(Way::Shared, slices), cut);
            let bare = ["process_vm_readv x2", "process_vm_readv x1"];
            assert_eq!(names(Way::Direct, None), [&bare[..], &["memcpy x2"]].concat());
            let sliced = [&bare[..], &["process_vm_readv x2 sliced", "memcpy x2"]].concat();
            assert_eq!(names(Way::Direct, slices), sliced);
        }
    }

    #[test]
    fn one_wrong_content_is_enough() {
        for wrong in [None, Some(0), Some(1), Some(2)] {
            let mut runs = Runs { content_ok: true, ..Runs::default() };
            (0..3).for_each(|run| runs.looked_at(run, wrong != Some(run)));
            assert_eq!((runs.content_ok, runs.verified), (wrong.is_none(), 2), "{wrong:?}");
        }
    }

    /// CPU seconds are a mean over the updates, times are medians. The first update is reported
    /// separately.
    #[test]
    fn runs_are_told_as_medians_and_means() {
        let runs = Runs {
            seconds: vec![2.0, 1.0, 4.0],
            read_s: vec![0.5, 1.5, 1.0],
            seal_s: vec![3.0, 5.0, 4.0],
            cpu_s: 6.0,
            extra: Some(12),
            verified: 34,
            content_ok: true,
        };
        let times = runs.times(8_000_000_000, 9.0);
        assert_eq!((times.median_s, times.read_median_s, times.seal_median_s), (2.0, 1.0, 4.0));
        assert_eq!((times.gb_per_s, times.cpu_s, times.first_s), (4.0, 2.0, 9.0));
        assert_eq!((times.extra_bytes, times.verified_bytes), (Some(12), 34));
        assert_eq!((times.content_ok, times.all_s), (true, vec![2.0, 1.0, 4.0]));
    }
}
