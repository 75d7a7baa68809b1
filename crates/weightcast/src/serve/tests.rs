//! How a server's settings reach its machine, and which clients it serves.

use super::*;

/// Clients have the token, and must not be able to make tickets if the servers have a secret of
/// their own.
#[test]
fn tickets_are_keyed_with_the_secret_of_the_servers_if_there_is_one() {
    let key = |secret: &str| TicketKey::of_secret(secret.as_bytes());
    for (token, ticket_secret, keyed) in [
        (Some("token"), Some("secret"), "secret"),
        (None, Some("secret"), "secret"),
        (Some("token"), None, "token"),
        (None, None, ""),
    ] {
        let [token, ticket_secret] = [token, ticket_secret].map(|bytes| bytes.map(Secret::new));
        let config = ServeConfig { token, ticket_secret, ..ServeConfig::default() };
        assert!(machine_config(&config, 1, [0; 2]).ticket_key == key(keyed), "{keyed}");
    }
}

#[test]
fn off_means_off() {
    use Guard::{Given, Nothing, OwnToken};
    for (address, token, insecure, guard) in [
        ("127.0.0.1:0", false, false, Some(OwnToken)),
        ("127.0.0.1:0", true, false, Some(Given)),
        ("127.0.0.1:0", false, true, Some(Nothing)),
        ("[::1]:0", false, false, Some(OwnToken)),
        ("[::ffff:127.0.0.1]:0", false, false, Some(OwnToken)),
        ("unix:/tmp/x.sock", false, false, Some(OwnToken)),
        ("unix:/tmp/x.sock", false, true, Some(Nothing)),
        ("0.0.0.0:0", false, false, None),
        ("0.0.0.0:0", true, false, Some(Given)),
        ("0.0.0.0:0", true, true, Some(Given)),
        ("0.0.0.0:0", false, true, Some(Nothing)),
        ("[::]:0", false, false, None),
        ("192.0.2.1:1", false, false, None),
    ] {
        let parsed = BindAddress::parse("server address", address).expect(address);
        assert_eq!(parsed.guard(token, insecure).ok(), guard, "{address}");
    }
    assert!(BindAddress::parse("server address", "localhost").is_err());
}

/// Each setting reaches the machine's setting of the same name.
#[test]
fn each_setting_reaches_the_machine() {
    let second = Duration::from_secs(1);
    let config = ServeConfig {
        index: 1,
        lease: 2 * second,
        drain_deadline: 3 * second,
        offload_deadline: 4 * second,
        fanout: 5,
        host_fanout: 7,
        stripes: 6,
        paranoid: true,
        ..ServeConfig::default()
    };
    let machine = machine_config(&config, 7, [8, 9]);
    assert_eq!((machine.life, machine.index, machine.secret), (7, 1, [8, 9]));
    let spans = [machine.lease, machine.drain_deadline, machine.offload_deadline];
    assert_eq!(spans, [2, 3, 4].map(Span::from_secs));
    assert_eq!((machine.fanout, machine.host_fanout, machine.stripes), (5, 7, 6));
    assert!(machine.paranoid);
    let usual = machine_config(&ServeConfig::default(), 7, [8, 9]);
    assert_eq!((usual.fanout, usual.host_fanout, usual.stripes), (1, 8, 8));
    assert!(!usual.paranoid);
    // For ever, where that is longer than the machine counts.
    let config = ServeConfig { lease: Duration::MAX, ..ServeConfig::default() };
    assert_eq!(machine_config(&config, 1, [0; 2]).lease, Span(u64::MAX));
}

#[test]
fn an_address_may_be_written_as_clients_write_it() {
    let tcp = BindAddress::Tcp("127.0.0.1:7".parse().unwrap());
    for text in ["127.0.0.1:7", "http://127.0.0.1:7"] {
        assert_eq!(BindAddress::parse("server address", text).unwrap(), tcp, "{text}");
    }
    let unix = BindAddress::parse("server address", "unix:/run/x.sock").unwrap();
    assert_eq!(unix, BindAddress::Unix("/run/x.sock".into()));
    for text in ["https://127.0.0.1:7", "127.0.0.1", "/run/x.sock", ""] {
        assert!(BindAddress::parse("server address", text).is_err(), "{text}");
    }
}

#[test]
fn a_list_has_so_many_places() {
    let most = Term::SERVERS as u32;
    for (index, right) in [(0, true), (most - 1, true), (most, false), (u32::MAX, false)] {
        let token = Some(Secret::new("t".repeat(32)));
        let served = serve(ServeConfig { token, index, ..ServeConfig::default() });
        assert_eq!(served.is_ok(), right, "{index}");
    }
}

#[test]
fn two_halves_of_a_secret_are_drawn() {
    let drawn = random_secret().unwrap();
    assert_ne!(drawn[0], drawn[1]);
    assert_ne!(random_secret().unwrap(), drawn);
    assert_ne!(random_life().unwrap(), random_life().unwrap());
}
