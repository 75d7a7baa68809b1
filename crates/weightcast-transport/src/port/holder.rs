//! Who holds a place at a data port.

use super::door::host_of;
use std::net::IpAddr;

/// Who holds a place, as far as that is not his to choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Holder {
    /// A process of this host, as the kernel says.
    Process(i32),
    /// An address, or the network that one host has to itself. The token is the job's, so over TCP
    /// nothing tells processes of one host apart.
    Address(IpAddr),
}

impl Holder {
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::Address(host_of(address))
    }
}
