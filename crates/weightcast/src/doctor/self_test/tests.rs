//! Bytes that are really moved, between two processes and not. The second process is this very test, started anew.

use std::io::{BufReader, Cursor};

use weightcast_transport::Way;

use super::*;

/// Set in the second process.
const INSIDE: &str = "WEIGHTCAST_TEST_SELF_TEST_READER";

/// The command that runs the test below as the second process. What the test harness says besides is no report.
fn program(script: &str) -> Vec<String> {
    ["sh", "-c", script].map(str::to_owned).into()
}

fn own_program() -> Vec<String> {
    let this = std::env::current_exe().unwrap();
    let name = "doctor::self_test::tests::all_ways_are_proved_between_two_processes";
    program(&format!("exec env {INSIDE}=1 '{}' --exact {name} --nocapture", this.display()))
}

#[test]
fn all_ways_are_proved_between_two_processes() {
    if std::env::var_os(INSIDE).is_some() {
        println!();
        return self_test_reader(std::io::stdin().lock(), std::io::stdout()).unwrap();
    }
    let [direct, tcp, shared] = trials(&own_program(), Ok(Ipv4Addr::LOCALHOST.into()));
    let moved = |trial: &Trial| match trial {
        Trial::Moved { bytes, seconds } => *bytes == BYTES as u64 && *seconds > 0.0,
        _ => false,
    };
    assert!(moved(&tcp), "{tcp:?}");
    assert!(moved(&shared), "{shared:?}");
    // Where the kernel forbids it, it says so.
    assert!(moved(&direct) || matches!(direct, Trial::Failed(_)), "{direct:?}");
}

/// What a reader of this very process reports on an order.
fn reported(order: &str) -> Result<String, crate::Error> {
    let mut said = Vec::new();
    self_test_reader(BufReader::new(Cursor::new(order.to_owned())), &mut said)?;
    Ok(String::from_utf8(said).unwrap())
}

#[test]
fn a_reader_with_another_token_fails_and_says_so() {
    let source = Source::serve(Ok(Ipv4Addr::UNSPECIFIED.into())).unwrap();
    let order = source.order();
    assert!(order.address.ip().is_loopback(), "all addresses are none to connect to");
    let said = reported(&order.line()).unwrap();
    let trials = WAYS.map(|way| source.trial(WayReport::find(way, &said)));
    assert!(trials.iter().all(|trial| matches!(trial, Trial::Moved { .. })), "{trials:?}");
    let stranger = SelfTestOrder { token: auth::new_token().unwrap(), ..order };
    let said = reported(&stranger.line()).unwrap();
    for way in WAYS {
        let trial = source.trial(WayReport::find(way, &said));
        assert!(
            matches!(&trial, Trial::Failed(why) if why.contains("different tokens")),
            "{trial:?}"
        );
    }
    assert!(reported("nonsense").is_err());
}

#[test]
fn other_bytes_are_found_out() {
    let source = Source::serve(Ok(Ipv4Addr::LOCALHOST.into())).unwrap();
    let right = WayReport::Read { seconds: 0.5, digest: source.digest };
    assert_eq!(source.trial(Some(right)), Trial::Moved { bytes: BYTES as u64, seconds: 0.5 });
    let wrong = WayReport::Read {
        seconds: 0.5,
        digest: Digest([source.digest.0[0] ^ 1, source.digest.0[1]]),
    };
    assert_eq!(source.trial(Some(wrong)), Trial::Wrong);
}

#[test]
fn without_shared_memory_that_way_alone_fails_and_says_why() {
    let mut source = Source::serve(Ok(Ipv4Addr::LOCALHOST.into())).unwrap();
    let none = shared_memory(Err(std::io::ErrorKind::Unsupported.into())).unwrap_err();
    assert!(none.contains("no memory can be shared: unsupported"), "{none}");
    source.shared = Err(none);
    let said = reported(&source.order().line()).unwrap();
    assert_eq!(WayReport::find(Way::Shared, &said), None);
    assert!(WayReport::find(Way::Tcp, &said).is_some(), "{said}");
}

#[test]
fn a_program_that_is_none_leaves_the_ways_untried() {
    let loopback = || Ok(Ipv4Addr::LOCALHOST.into());
    for (program, word) in [
        (Vec::new(), "no program"),
        (vec!["/no/such/program".to_owned()], "no second process"),
        (program("exit 3"), "ended before"),
        (program("echo tcp read nonsense"), "ended before"),
    ] {
        for trial in trials(&program, loopback()) {
            let Trial::NotTried(why) = &trial else { panic!("{program:?}: {trial:?}") };
            assert!(why.contains(word), "{why}");
        }
    }
}

/// The memory of another process is still read, as shared memory and directly.
#[test]
fn an_address_of_another_host_fails_tcp_alone() {
    let elsewhere: IpAddr = "192.0.2.200".parse().unwrap();
    let [direct, tcp, shared] = trials(&own_program(), Ok(elsewhere));
    assert!(matches!(shared, Trial::Moved { .. }), "{shared:?}");
    assert!(matches!(&tcp, Trial::Failed(why) if why.contains("192.0.2.200")), "{tcp:?}");
    assert!(matches!(direct, Trial::Moved { .. } | Trial::Failed(_)), "{direct:?}");
}
