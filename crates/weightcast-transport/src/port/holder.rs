//! The holders of places at a data port.

use crate::base::host::host_of;
use std::net::IpAddr;

/// The holder of a place, named by what a peer cannot choose itself.
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

    pub(crate) fn host(self) -> Option<IpAddr> {
        match self {
            Self::Process(_) => None,
            Self::Address(host) => Some(host),
        }
    }
}
