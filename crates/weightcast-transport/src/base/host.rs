//! What stands for a host.

use std::net::{IpAddr, Ipv6Addr};

/// An address, or the network that one host has to itself: it may come from any address of that.
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_stands_for_what_one_host_has() {
        let of = |text: &str| host_of(text.parse().unwrap()).to_string();
        assert_eq!(of("::ffff:10.0.0.1"), "10.0.0.1");
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
    }

    #[test]
    fn a_host_has_64_bits_of_a_long_address_and_all_of_a_short_one() {
        let of = |text: &str| host_of(text.parse().unwrap()).to_string();
        assert_eq!(of("1:2:3:4:5:6:7:8"), "1:2:3:4::");
        assert_eq!(of("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), "ffff:ffff:ffff:ffff::");
        assert_eq!(of("::1"), "::");
        assert_eq!(["10.0.0.1", "10.0.0.2"].map(of), ["10.0.0.1", "10.0.0.2"]);
    }
}
