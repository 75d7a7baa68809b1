//! Limits of this process and its host.

use weightcast_transport::limits::{MAX_CONNECTIONS, RESERVED_DESCRIPTORS};

use super::size;
use crate::client::COPY_THREADS;
use crate::doctor::check::Check;

/// Descriptors below which a data port serves few: half of them are its process's own.
const FEW_DESCRIPTORS: u64 = 2 * RESERVED_DESCRIPTORS;
/// Sessions that a small job has: a server needs a descriptor for each.
const FEW_SESSIONS: u64 = 4_096;
/// Memory below which even small copies aside have no room.
const LITTLE_MEMORY: u64 = 1 << 30;

/// What the system allows.
#[derive(Clone, Debug)]
pub(in crate::doctor) struct LimitFacts {
    /// Open files, soft and hard; `None` is without a limit.
    pub(in crate::doctor) descriptors: (Option<u64>, Option<u64>),
    /// Bytes that may be locked.
    pub(in crate::doctor) memlock: Option<u64>,
    /// Yama's, if the kernel has it.
    pub(in crate::doctor) ptrace_scope: Option<u32>,
    /// Bytes of /dev/shm, all and free; `None`: there is none.
    pub(in crate::doctor) shm: Option<(u64, u64)>,
    /// Bytes that programs can still have; `None`: the kernel does not say.
    pub(in crate::doctor) memory: Option<u64>,
    /// CPUs that this process may use.
    pub(in crate::doctor) cpus: usize,
    pub(in crate::doctor) clock: ClockFacts,
}

/// What was seen of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(in crate::doctor) struct ClockFacts {
    /// It has gone back.
    pub(in crate::doctor) backwards: bool,
    /// The smallest step between two readings, in nanoseconds.
    pub(in crate::doctor) step_ns: u64,
}

/// The checks of all limits.
pub(in crate::doctor) fn judge(facts: &LimitFacts) -> Vec<Check> {
    vec![
        descriptors(facts.descriptors),
        memlock(facts.memlock),
        ptrace(facts.ptrace_scope),
        shm(facts.shm),
        memory(facts.memory),
        cpus(facts.cpus),
        clock(facts.clock),
    ]
}

fn descriptors((soft, hard): (Option<u64>, Option<u64>)) -> Check {
    const ID: &str = "limit.descriptors";
    let said =
        |limit: Option<u64>| limit.map_or("any number".to_owned(), |limit| limit.to_string());
    let found = format!(
        "{} open files, at most {}; a worker keeps this limit, `weightcast serve` raises its own \
         to the most",
        said(soft),
        said(hard)
    );
    let most = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    if most(soft) < FEW_DESCRIPTORS {
        let advice = format!(
            "run `ulimit -n {}` before workers start: a data port leaves half of the descriptors \
             to its process, and serves at most {MAX_CONNECTIONS} readers with the rest",
            most(hard).min(MAX_CONNECTIONS as u64 + FEW_DESCRIPTORS)
        );
        return Check::warning(ID, found, advice);
    }
    if most(hard) < FEW_SESSIONS {
        let advice = "raise the hard limit (limits.conf, LimitNOFILE, --ulimit) where a server \
                      runs: each shard's session takes a descriptor";
        return Check::warning(ID, found, advice);
    }
    Check::ok(ID, found)
}

fn memlock(limit: Option<u64>) -> Check {
    let limit = limit.map_or("no limit".to_owned(), size);
    Check::ok("limit.memlock", format!("{limit}; this build locks no memory"))
}

fn ptrace(scope: Option<u32>) -> Check {
    const ID: &str = "limit.ptrace";
    match scope {
        None => Check::ok(ID, "the kernel has no Yama: processes of a user may read each other"),
        Some(0) => {
            Check::ok(ID, "Yama's ptrace_scope is 0: processes of a user may read each other")
        }
        Some(scope) => Check::warning(
            ID,
            format!(
                "Yama's ptrace_scope is {scope}: a process may not read the memory of one that it \
                 has not started"
            ),
            "run `sysctl -w kernel.yama.ptrace_scope=0`, or give the workers CAP_SYS_PTRACE; until \
             then, reads within this host go over TCP",
        ),
    }
}

fn shm(shm: Option<(u64, u64)>) -> Check {
    const ID: &str = "limit.shm";
    match shm {
        None => Check::not_applicable(ID, "there is no /dev/shm; weightcast does not use it"),
        Some((all, free)) => Check::ok(
            ID,
            format!("{} free of {}; weightcast does not use it", size(free), size(all)),
        ),
    }
}

fn memory(available: Option<u64>) -> Check {
    const ID: &str = "limit.memory";
    match available {
        None => Check::not_applicable(ID, "the kernel does not say how much memory is free"),
        Some(available) if available < LITTLE_MEMORY => Check::warning(
            ID,
            format!("{} free", size(available)),
            "free memory, or raise the limit of the container: offloaded copies, seeds and staged \
             updates take as much as a shard has (offload_bytes and staging_bytes of open bound \
             them)",
        ),
        Some(available) => Check::ok(ID, format!("{} free", size(available))),
    }
}

fn cpus(cpus: usize) -> Check {
    const ID: &str = "limit.cpus";
    if cpus < COPY_THREADS {
        return Check::warning(
            ID,
            format!("{cpus} CPU for this process"),
            format!("allow more: a read copies with {COPY_THREADS} threads"),
        );
    }
    Check::ok(ID, format!("{cpus} CPUs for this process"))
}

fn clock(clock: ClockFacts) -> Check {
    const ID: &str = "limit.clock";
    if clock.backwards {
        return Check::problem(
            ID,
            "the monotonic clock went back",
            "choose another clock source (/sys/devices/system/clocksource): leases and deadlines \
             go by this clock",
        );
    }
    Check::ok(
        ID,
        format!(
            "monotonic, in steps of {} ns; how far the server's clock is off is not knowable, and \
             of no consequence: no time of one machine is compared with another's",
            clock.step_ns
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckVerdict::{NotApplicable, Ok, Problem, Warning};
    use crate::doctor::check::{CheckVerdict, assert_check};

    fn good() -> LimitFacts {
        LimitFacts {
            descriptors: (Some(1_024), Some(1 << 20)),
            memlock: Some(8 << 20),
            ptrace_scope: None,
            shm: Some((64 << 20, 32 << 20)),
            memory: Some(8 << 30),
            cpus: 8,
            clock: ClockFacts { backwards: false, step_ns: 30 },
        }
    }

    const IDS: [&str; 7] = [
        "limit.descriptors",
        "limit.memlock",
        "limit.ptrace",
        "limit.shm",
        "limit.memory",
        "limit.cpus",
        "limit.clock",
    ];

    #[test]
    fn a_good_host_has_nothing_to_be_done() {
        for (check, id) in judge(&good()).iter().zip(IDS) {
            assert_check(check, id, Ok, &[]);
        }
    }

    /// The check of one limit, where all others are good.
    #[track_caller]
    fn assert_limit(facts: LimitFacts, id: &str, verdict: CheckVerdict, words: &[&str]) {
        for check in judge(&facts) {
            match check.id == id {
                true => assert_check(&check, id, verdict, words),
                false => assert_check(&check, check.id, Ok, &[]),
            }
        }
    }

    #[test]
    fn descriptors_are_few_below_their_bounds() {
        for (soft, hard, verdict) in [
            (Some(FEW_DESCRIPTORS - 1), Some(1 << 20), Warning),
            (Some(FEW_DESCRIPTORS), Some(1 << 20), Ok),
            (Some(FEW_DESCRIPTORS), Some(FEW_SESSIONS - 1), Warning),
            (Some(FEW_DESCRIPTORS), Some(FEW_SESSIONS), Ok),
            (Some(1_024), None, Ok),
            (None, None, Ok),
        ] {
            let facts = LimitFacts { descriptors: (soft, hard), ..good() };
            assert_limit(facts, "limit.descriptors", verdict, &["open files"]);
        }
        let facts = LimitFacts { descriptors: (Some(64), Some(600)), ..good() };
        assert_limit(facts, "limit.descriptors", Warning, &["64 open files", "ulimit -n 600"]);
    }

    #[test]
    fn each_limit_has_its_verdict() {
        let clock = |backwards| ClockFacts { backwards, step_ns: 30 };
        let table: [(LimitFacts, &str, CheckVerdict, &[&str]); 13] = [
            (LimitFacts { memlock: None, ..good() }, "limit.memlock", Ok, &["no limit"]),
            (LimitFacts { memlock: Some(0), ..good() }, "limit.memlock", Ok, &["0 bytes"]),
            (LimitFacts { ptrace_scope: Some(0), ..good() }, "limit.ptrace", Ok, &["is 0"]),
            (LimitFacts { ptrace_scope: Some(1), ..good() }, "limit.ptrace", Warning, &["sysctl"]),
            (LimitFacts { ptrace_scope: Some(3), ..good() }, "limit.ptrace", Warning, &["is 3"]),
            (LimitFacts { shm: None, ..good() }, "limit.shm", NotApplicable, &["no /dev/shm"]),
            (LimitFacts { memory: None, ..good() }, "limit.memory", NotApplicable, &[]),
            (
                LimitFacts { memory: Some(LITTLE_MEMORY - 1), ..good() },
                "limit.memory",
                Warning,
                &["1024.0 MiB free", "offload_bytes"],
            ),
            (
                LimitFacts { memory: Some(LITTLE_MEMORY), ..good() },
                "limit.memory",
                Ok,
                &["1.0 GiB"],
            ),
            (LimitFacts { cpus: COPY_THREADS - 1, ..good() }, "limit.cpus", Warning, &["1 CPU"]),
            (LimitFacts { cpus: COPY_THREADS, ..good() }, "limit.cpus", Ok, &["2 CPUs"]),
            (LimitFacts { clock: clock(true), ..good() }, "limit.clock", Problem, &["went back"]),
            (
                LimitFacts { clock: clock(false), ..good() },
                "limit.clock",
                Ok,
                &["30 ns", "not knowable"],
            ),
        ];
        for (facts, id, verdict, words) in table {
            assert_limit(facts, id, verdict, words);
        }
    }
}
