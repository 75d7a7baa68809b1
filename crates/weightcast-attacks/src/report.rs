//! Runs attacks one after another, and reports how each went.

use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use crate::attacks::{ALL, Attack};
use crate::scene::AttackReport;

/// Succeeds if no attack does.
pub(crate) fn run(only: &[String], json: bool) -> Result<ExitCode> {
    for name in only {
        ensure!(ALL.iter().any(|attack| attack.name == name), "no attack is called {name}: --list");
    }
    let mut reports = Vec::new();
    for attack in ALL {
        if !only.is_empty() && !only.iter().any(|name| name == attack.name) {
            continue;
        }
        eprintln!("{}: {}", attack.name, attack.what);
        let report =
            attempt(attack).with_context(|| format!("{} could not be tried", attack.name))?;
        eprintln!("    {}", verdict(&report));
        reports.push(report);
    }
    // Attacks that succeeded come last, because often only the end of a log is kept.
    reports.sort_by_key(|report| !report.succeeded.is_empty());
    if json {
        println!("{}", serde_json::to_string_pretty(&reports)?);
    } else {
        reports.iter().for_each(print);
    }
    let succeeded: Vec<_> = reports.iter().filter(|report| !report.succeeded.is_empty()).collect();
    let skipped = reports.iter().filter(|report| report.skipped.is_some()).count();
    eprintln!("\n{} attacks: {} succeeded, {skipped} skipped", reports.len(), succeeded.len());
    succeeded.iter().for_each(|report| eprintln!("{} {}", report.name, verdict(report)));
    Ok(if succeeded.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn attempt(attack: &Attack) -> Result<AttackReport> {
    let started = Instant::now();
    let mut scene = (attack.scene)()?;
    let carried_out = (attack.carry_out)(&mut scene);
    let stuck =
        carried_out.as_ref().err().map(|error| format!("the attack ended early: {error:#}"));
    stuck.into_iter().for_each(|stuck| scene.note(stuck));
    let report = scene.finish(attack.name, attack.item, started);
    // An attack that ended early and did no harm is broken itself.
    if report.succeeded.is_empty() {
        carried_out?;
    }
    Ok(report)
}

fn verdict(report: &AttackReport) -> String {
    match (report.succeeded.as_slice(), &report.skipped) {
        ([], Some(why)) => format!("SKIPPED: {why}"),
        ([], None) => format!("held, {:.0} s", report.seconds),
        (how, _) => format!("SUCCEEDED: {}", how.join("; ")),
    }
}

fn print(report: &AttackReport) {
    println!("\n{} ({}): {}", report.name, report.item, verdict(report));
    report.notes.iter().for_each(|note| println!("  {note}"));
    for (call, took) in [("publish", &report.publish), ("update", &report.update)] {
        if took.calls > 0 {
            println!(
                "  honest {call}: {} calls, median {:.1} ms, p99 {:.1}, max {:.1}",
                took.calls, took.median, took.p99, took.max
            );
        }
    }
    for course in &report.processes {
        println!(
            "  {:<16} memory {:.0} MB, peak {:.0}, after {:.0}; descriptors {}, {}, {}; CPU {:.1} s",
            course.process,
            course.before.rss_mb,
            course.peak.rss_mb,
            course.after.rss_mb,
            course.before.descriptors,
            course.peak.descriptors,
            course.after.descriptors,
            course.after.cpu_s - course.before.cpu_s,
        );
    }
}
