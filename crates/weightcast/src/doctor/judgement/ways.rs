//! Ways of moving bytes: which work here, as a second process has proved.

use super::size;
use crate::doctor::check::{Check, CheckVerdict};

/// What is known of the ways of this host.
pub(in crate::doctor) struct WayFacts {
    pub(in crate::doctor) direct: Trial,
    pub(in crate::doctor) tcp: Trial,
    pub(in crate::doctor) shared: Trial,
    /// Where the kernel has huge pages: for which shared memory they are (`shmem_enabled`).
    pub(in crate::doctor) shmem_pages: Option<String>,
    /// Yama's, if the kernel has it.
    pub(in crate::doctor) ptrace_scope: Option<u32>,
    /// Adapters that could do RDMA.
    pub(in crate::doctor) rdma_devices: usize,
    /// GPUs of this host.
    pub(in crate::doctor) gpus: usize,
}

/// How one way went when bytes were moved by it, from this process to another.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::doctor) enum Trial {
    /// They are there.
    Moved {
        /// Of one read.
        bytes: u64,
        /// Of one read, the median.
        seconds: f64,
    },
    /// Other bytes are there.
    Wrong,
    /// It did not work.
    Failed(String),
    /// It could not be tried.
    NotTried(String),
}

const DIRECT: &str = "way.direct";
const TCP: &str = "way.tcp";
const SHARED: &str = "way.shared-memory";

/// The checks of all ways.
pub(in crate::doctor) fn judge(facts: &WayFacts) -> Vec<Check> {
    vec![
        direct(facts),
        tcp(&facts.tcp),
        shared(facts),
        absent("way.rdma", "RDMA", facts.rdma_devices, "RDMA devices"),
        absent("way.cuda", "CUDA", facts.gpus, "GPUs"),
    ]
}

fn absent(id: &'static str, what: &str, count: usize, devices: &str) -> Check {
    let here =
        if count == 0 { String::new() } else { format!("; this host has {count} {devices}") };
    Check::not_applicable(id, format!("this build has no {what}{here}"))
}

fn direct(facts: &WayFacts) -> Check {
    match &facts.direct {
        Trial::Failed(why) => {
            let cure = match facts.ptrace_scope {
                Some(1..) => {
                    "set kernel.yama.ptrace_scope to 0, or give the workers CAP_SYS_PTRACE"
                }
                _ => {
                    "have the workers of one host share a pid namespace and a user, and allow \
                     process_vm_readv (containers: the seccomp profile, CAP_SYS_PTRACE)"
                }
            };
            let advice = format!("{cure}; until then, reads within a host go over TCP");
            Check::warning(DIRECT, why, advice)
        }
        trial => moved(DIRECT, trial, "read from the memory of another process"),
    }
}

fn tcp(trial: &Trial) -> Check {
    match trial {
        Trial::Failed(why) => {
            let advice = "free the address, or set WEIGHTCAST_DATA_BIND to one of this host's";
            Check::problem(TCP, why, advice)
        }
        trial => moved(TCP, trial, "within this host: says nothing of the network"),
    }
}

fn shared(facts: &WayFacts) -> Check {
    if let Trial::Failed(why) = &facts.shared {
        let advice = "run Linux 5.1 or later with /proc mounted, and allow memfd_create and seals \
                      (containers: the seccomp profile); until then, reads within this host are \
                      direct or go over TCP";
        return Check::warning(SHARED, why, advice);
    }
    let mut check = moved(SHARED, &facts.shared, "read from memory that another process shares");
    if check.verdict == CheckVerdict::Ok {
        let pages = shmem_pages(facts.shmem_pages.as_deref());
        check.found += "; for weights that lie there (share_ of weightcast.torch, empty_like), \
                        others are read directly; ";
        check.found += &pages;
    }
    check
}

/// Which pages back shared memory.
fn shmem_pages(shmem_enabled: Option<&str>) -> String {
    match shmem_enabled {
        None => "the kernel has no huge pages for it".to_owned(),
        Some(setting @ ("always" | "within_size" | "advise" | "force")) => {
            format!("the kernel backs it with huge pages (shmem_enabled is {setting})")
        }
        Some(setting) => format!(
            "the kernel backs it with small pages (shmem_enabled is {setting}); for huge ones, \
             write advise to /sys/kernel/mm/transparent_hugepage/shmem_enabled"
        ),
    }
}

/// Of a trial that has not failed.
fn moved(id: &'static str, trial: &Trial, how: &str) -> Check {
    match trial {
        Trial::Moved { bytes, seconds } => {
            let rate = *bytes as f64 / seconds.max(1e-9) / 1e9;
            let read = size(*bytes);
            Check::ok(id, format!("{rate:.1} GB/s, {how} ({read} a read, all bytes compared)"))
        }
        Trial::NotTried(why) => Check::not_applicable(id, why),
        Trial::Wrong | Trial::Failed(_) => Check::problem(
            id,
            "other bytes arrived than were sent",
            "do not use this host for weights; look at its memory (edac) and its kernel, and \
             report this",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem, Warning};
    use crate::doctor::check::assert_check;

    fn facts(direct: Trial, tcp: Trial) -> WayFacts {
        WayFacts {
            direct,
            tcp,
            shared: moved(),
            shmem_pages: None,
            ptrace_scope: None,
            rdma_devices: 0,
            gpus: 0,
        }
    }

    fn moved() -> Trial {
        Trial::Moved { bytes: 64 << 20, seconds: 0.0067 }
    }

    #[test]
    fn a_trial_has_its_verdict() {
        let failed = || Trial::Failed("not permitted".to_owned());
        let untried = || Trial::NotTried("no program".to_owned());
        let table: [(Trial, CheckVerdict, CheckVerdict, &[&str]); 4] = [
            (moved(), Ok, Ok, &["10.0 GB/s", "64.0 MiB", "compared"]),
            (Trial::Wrong, Problem, Problem, &["other bytes"]),
            (failed(), Warning, Problem, &["not permitted"]),
            (untried(), NotApplicable, NotApplicable, &["no program"]),
        ];
        for (trial, direct, tcp, words) in table {
            let of_all = WayFacts { shared: trial.clone(), ..facts(trial.clone(), trial) };
            let checks = judge(&of_all);
            assert_check(&checks[0], "way.direct", direct, words);
            assert_check(&checks[1], "way.tcp", tcp, words);
            assert_check(&checks[2], "way.shared-memory", direct, words);
        }
    }

    #[test]
    fn the_advice_goes_by_what_the_kernel_restricts() {
        for (scope, words) in [
            (None, "CAP_SYS_PTRACE"),
            (Some(0), "pid namespace"),
            (Some(1), "kernel.yama.ptrace_scope"),
            (Some(3), "kernel.yama.ptrace_scope"),
        ] {
            let facts = WayFacts {
                ptrace_scope: scope,
                ..facts(Trial::Failed("EPERM".to_owned()), moved())
            };
            assert_check(&judge(&facts)[0], "way.direct", Warning, &[words, "go over TCP"]);
        }
    }

    #[test]
    fn shared_memory_is_told_with_what_it_is_for_and_its_pages() {
        let judged = |shared, pages: Option<&str>| {
            let facts = WayFacts {
                shared,
                shmem_pages: pages.map(str::to_owned),
                ..facts(moved(), moved())
            };
            judge(&facts).swap_remove(2)
        };
        for (pages, said) in [
            (None, "no huge pages"),
            (Some("never"), "small pages (shmem_enabled is never); for huge ones, write advise to"),
            (Some("deny"), "small pages (shmem_enabled is deny)"),
            (Some("advise"), "huge pages (shmem_enabled is advise)"),
            (Some("within_size"), "huge pages (shmem_enabled is within_size)"),
        ] {
            let words = ["10.0 GB/s", "empty_like", "others are read directly", said];
            assert_check(&judged(moved(), pages), "way.shared-memory", Ok, &words);
        }
        let failed = judged(Trial::Failed("no memfd".to_owned()), Some("never"));
        let words = ["no memfd", "memfd_create", "direct or go over TCP"];
        assert_check(&failed, "way.shared-memory", Warning, &words);
    }

    #[test]
    fn ways_that_this_build_lacks_are_told_with_what_the_host_has() {
        let facts = WayFacts { rdma_devices: 4, gpus: 8, ..facts(moved(), moved()) };
        let checks = judge(&facts);
        for (check, (id, words)) in checks[3..].iter().zip([
            ("way.rdma", ["this build has no RDMA", "4 RDMA devices"]),
            ("way.cuda", ["this build has no CUDA", "8 GPUs"]),
        ]) {
            assert_check(check, id, NotApplicable, &words);
        }
        let bare = judge(&self::facts(moved(), moved()));
        assert!(!bare[3].found.contains("this host"));
    }
}
