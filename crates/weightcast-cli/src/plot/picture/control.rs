//! Latencies and processor time of a reference server under thousands of sessions.

use super::{BarChart, BarSeries, Curve, Ink, Picture, PicturePanel, PlotAxis};
use crate::plot::numbers::decimals;
use crate::plot::reading::control::{
    ControlFile, FileFailover, FileHerd, FileLoad, FilePercentiles, FileSweep,
};

/// What one bench of the control plane measured.
pub(crate) fn picture(file: &ControlFile) -> Picture {
    let load = format!("server and load on this machine, load threads: {}", file.load_threads);
    let mut notes = vec![file.machine.line(), load];
    if let Some(crowd) = &file.connected {
        let kib = crowd.bytes_per_session as f64 / 1024.0;
        let (sessions, seconds) = (whole(crowd.sessions as f64), crowd.connect_s);
        notes.push(format!("{sessions} sessions, connected in {seconds:.2} s, {kib:.0} KiB each"));
    }
    let mut rows: Vec<Vec<_>> =
        file.mixed.chunks(2).map(|loads| loads.iter().map(latency_panel).collect()).collect();
    let mut others = vec![cpu_panel(&file.mixed), herd_panel(&file.herds)];
    others.extend(file.failover.as_ref().map(failover_panel));
    rows.push(others);
    rows.extend(sweep_rows(&file.sweep));
    Picture::new("The reference server under load", notes, rows)
}

fn latency_panel(load: &FileLoad) -> PicturePanel {
    let names = ["all".to_owned()].into_iter().chain(load.kinds.keys().cloned()).collect();
    let figures: Vec<_> = [&load.all].into_iter().chain(load.kinds.values()).collect();
    let title = format!("Latency at {} operations a second", whole(load.asked_per_s));
    PicturePanel::bars(title, BarChart::new("milliseconds", names, percentiles(&figures)))
}

fn percentiles(of: &[&FilePercentiles]) -> [BarSeries; 2] {
    let values = |of_one: fn(&FilePercentiles) -> f64| of.iter().map(move |p| Some(of_one(p)));
    [
        BarSeries::new("p50", Ink::Weightcast, values(|p| p.p50_ms)),
        BarSeries::new("p99", Ink::Compared, values(|p| p.p99_ms)),
    ]
}

fn cpu_panel(loads: &[FileLoad]) -> PicturePanel {
    let values = |of: fn(&FileLoad) -> f64| loads.iter().map(move |load| Some(of(load) * 100.0));
    let series = [
        BarSeries::new("server", Ink::Weightcast, values(|load| load.server_cpu)),
        BarSeries::new("load generator", Ink::Limit, values(|load| load.load_cpu)),
    ];
    let names = loads.iter().map(|load| format!("{} a second", whole(load.asked_per_s))).collect();
    PicturePanel::bars("Processor time", BarChart::new("% of a core", names, series))
}

fn herd_panel(herds: &[FileHerd]) -> PicturePanel {
    let latencies: Vec<_> = herds.iter().map(|herd| &herd.latency).collect();
    let all = herds.iter().map(|herd| Some(herd.seconds * 1e3));
    let all = BarSeries::new("all answered", Ink::Limit, all);
    let series = percentiles(&latencies).into_iter().chain([all]);
    let name = |herd: &FileHerd| format!("{}, {} groups", herd.call, whole(herd.groups as f64));
    let names = herds.iter().map(name).collect();
    PicturePanel::bars("All groups ask within 100 ms", BarChart::new("milliseconds", names, series))
}

fn failover_panel(failover: &FileFailover) -> PicturePanel {
    let names = ["first session turns", "95 % in whole groups", "all in whole groups"];
    let times = [failover.first_s, failover.most_s, failover.all_s].map(Some);
    let title = format!("{} sessions lose their server", whole(failover.sessions as f64));
    let axis = format!("seconds since its death; the lease is {} s", failover.lease_s);
    let series = [BarSeries::new("backup", Ink::Weightcast, times)];
    PicturePanel::bars(title, BarChart::new(axis, names.map(String::from).into(), series))
}

/// With thousands apart.
fn whole(number: f64) -> String {
    decimals(number, 0)
}

fn sweep_rows(sweep: &[FileSweep]) -> Vec<Vec<PicturePanel>> {
    let points = |of: fn(&FileSweep) -> f64| {
        sweep.iter().map(|step| (step.connected.sessions as f64, of(step))).collect()
    };
    let panel = |title: &str, y, curves: Vec<Curve>| {
        PicturePanel::curves(title, PlotAxis::doubling("sessions"), y, curves)
    };
    let one = |of| vec![Curve::new("server", Ink::Weightcast, points(of))];
    let latencies = vec![
        Curve::new("p50", Ink::Weightcast, points(|step| step.mixed.all.p50_ms)),
        Curve::new("p99", Ink::Compared, points(|step| step.mixed.all.p99_ms)),
    ];
    let seconds = one(|step| step.connected.connect_s);
    let memory = one(|step| step.connected.bytes_per_session as f64 / 1024.0);
    vec![
        vec![
            panel(
                "Processor time of an operation",
                PlotAxis::linear("microseconds"),
                one(|step| step.mixed.server_us_per_op),
            ),
            panel("Latency", PlotAxis::linear("milliseconds"), latencies),
        ],
        vec![
            panel("All connected", PlotAxis::logarithmic("seconds"), seconds),
            panel("Memory of the server", PlotAxis::linear("KiB a session"), memory),
        ],
    ]
}
