//! On which NUMA node pages are.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use thiserror::Error;

/// The nodes that have memory, as the kernel lists them.
const NODES: &str = "/sys/devices/system/node/has_memory";

/// No kernel knows more nodes.
const MOST_NODES: usize = 1024;

/// Why shared memory on a NUMA node could not be had.
#[derive(Debug, Error)]
pub enum NumaError {
    /// The machine has no such node, or the node has no memory.
    #[error(
        "this machine has no memory on NUMA node {node}: nodes with memory are {there}; name one of them, or none"
    )]
    NoSuchNode {
        /// What was asked for.
        node: u32,
        /// The nodes with memory, as the kernel lists them: `0-1,4`.
        there: String,
    },
    /// The kernel did not bind the memory.
    #[error(
        "memory was not bound to NUMA node {node}: {error}; look at Mems_allowed_list in /proc/self/status (a cpuset), \
         and whether a container forbids mbind (Docker allows it with --cap-add SYS_NICE)"
    )]
    NotBound {
        /// What was asked for.
        node: u32,
        /// What the system said.
        error: io::Error,
    },
    /// There is no memory, or no descriptor.
    #[error(transparent)]
    Memory(#[from] io::Error),
}

/// Whether there is memory on a node. Where the kernel's list cannot be read, the kernel has the last word in [`bind`].
pub(super) fn check(node: u32) -> Result<(), NumaError> {
    match fs::read_to_string(NODES) {
        Ok(list) if !lists(&list, node) => {
            Err(NumaError::NoSuchNode { node, there: list.trim().to_owned() })
        }
        _ => Ok(()),
    }
}

/// Whether a list such as `0-1,4` has a node.
fn lists(list: &str, node: u32) -> bool {
    list.trim().split(',').filter_map(range).any(|range| range.contains(&node))
}

fn range(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(first.parse().ok()?..=last.parse().ok()?)
}

/// Lets pages of a mapping come from one node alone. Of a shared mapping the kernel keeps this with the file, for
/// whoever maps it.
pub(super) fn bind(address: *mut u8, len: usize, node: u32) -> Result<(), NumaError> {
    let mut mask = [0_u64; MOST_NODES / 64];
    let Some(word) = mask.get_mut(node as usize / 64) else {
        let error = io::Error::from(io::ErrorKind::InvalidInput);
        return Err(NumaError::NotBound { node, error });
    };
    *word = 1 << (node % 64);
    // The kernel takes one bit less than this number says.
    let bits = MOST_NODES + 1;
    // SAFETY: no page is touched, and no content changes; the kernel checks the range, and reads `bits - 1` bits of
    // the mask, which lives through the call.
    let done = unsafe {
        libc::syscall(libc::SYS_mbind, address, len, libc::MPOL_BIND, mask.as_ptr(), bits, 0)
    };
    match done {
        0 => Ok(()),
        _ => Err(NumaError::NotBound { node, error: io::Error::last_os_error() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_in_the_kernels_list() {
        for (list, nodes) in [("0\n", &[0][..]), ("0-1,4\n", &[0, 1, 4]), ("2,10-11", &[2, 10, 11])]
        {
            let found: Vec<u32> = (0..100).filter(|node| lists(list, *node)).collect();
            assert_eq!(found, nodes, "{list}");
        }
        assert!(!lists("", 0) && !lists("\n", 0));
    }
}
