//! What a process costs, as the kernel counts it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::Serialize;

/// How often descriptors are counted. Memory has a high-water mark of its own.
const TICK: Duration = Duration::from_millis(100);

/// Ticks of a second in `/proc/<pid>/stat`: the same on every machine.
const TICKS: f64 = 100.0;

/// What a process uses at one moment.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Usage {
    pub(crate) rss_mb: f64,
    pub(crate) cpu_s: f64,
    pub(crate) descriptors: usize,
    pub(crate) threads: usize,
}

impl Usage {
    pub(crate) fn of(pid: u32) -> Self {
        Self {
            rss_mb: status(pid, "VmRSS:") / 1024.0,
            cpu_s: cpu_seconds(pid),
            descriptors: fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, Iterator::count),
            threads: status(pid, "Threads:") as usize,
        }
    }

    fn max(self, other: Self) -> Self {
        Self {
            rss_mb: self.rss_mb.max(other.rss_mb),
            cpu_s: self.cpu_s.max(other.cpu_s),
            descriptors: self.descriptors.max(other.descriptors),
            threads: self.threads.max(other.threads),
        }
    }
}

/// A line of `/proc/<pid>/status`.
fn status(pid: u32, name: &str) -> f64 {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let value = line.and_then(|rest| rest.split_whitespace().next());
    value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
}

/// User and system time.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks: f64 =
        after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum();
    ticks / TICKS
}

/// What a process used before an attack, at worst, and after it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Course {
    pub(crate) process: String,
    pub(crate) before: Usage,
    pub(crate) peak: Usage,
    pub(crate) after: Usage,
}

impl Course {
    /// Looks at the process. A process that has ended keeps its last figures.
    fn look(&mut self, pid: u32) {
        let now = Usage::of(pid);
        if now.threads > 0 && now.rss_mb > 0.0 {
            self.after = now;
            self.peak = self.peak.max(now);
        }
    }

    /// Megabytes that the process had more than before the attack.
    pub(crate) fn grown_mb(&self) -> f64 {
        self.peak.rss_mb - self.before.rss_mb
    }

    pub(crate) fn more_descriptors(&self) -> usize {
        self.peak.descriptors.saturating_sub(self.before.descriptors)
    }
}

/// Watches processes, until the figures are asked for.
pub(crate) struct Meter {
    watched: Arc<Mutex<Vec<(u32, Course)>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Meter {
    pub(crate) fn start() -> Self {
        let (watched, stop) = (Arc::<Mutex<Vec<(u32, Course)>>>::default(), Arc::default());
        let thread = std::thread::spawn({
            let (watched, stop) = (Arc::clone(&watched), Arc::<AtomicBool>::clone(&stop));
            move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(TICK);
                    for (pid, course) in watched.lock().expect("no panic while held").iter_mut() {
                        course.look(*pid);
                    }
                }
            }
        });
        Self { watched, stop, thread: Some(thread) }
    }

    /// Watches a process from now on.
    pub(crate) fn watch(&self, process: &str, pid: u32) {
        // The high-water mark begins anew.
        let _ = fs::write(format!("/proc/{pid}/clear_refs"), "5");
        let before = Usage::of(pid);
        let course = Course { process: process.to_owned(), before, peak: before, after: before };
        self.watched.lock().expect("no panic while held").push((pid, course));
    }

    pub(crate) fn finish(mut self) -> Vec<Course> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let watched = std::mem::take(&mut *self.watched.lock().expect("no panic while held"));
        let mut courses = Vec::with_capacity(watched.len());
        for (pid, mut course) in watched {
            course.look(pid);
            course.peak.rss_mb = course.peak.rss_mb.max(status(pid, "VmHWM:") / 1024.0);
            courses.push(course);
        }
        courses
    }
}
