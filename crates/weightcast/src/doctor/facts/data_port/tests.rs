//! A listener takes the server's proof and no other; a reply is understood.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::*;
use crate::config::Role;

const NONCE: DialNonce = [3; 16];

/// Whether this is taken for the server's proof.
async fn is_proved(said: &[u8]) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    peer.write_all(said).await.unwrap();
    drop(peer);
    is_proof(listener.accept().await.unwrap().0, &NONCE).await
}

#[tokio::test]
async fn only_the_proof_of_this_nonce_counts() {
    let right = proof(&NONCE);
    assert!(is_proved(&right).await);
    let more = [&right[..], b"x"].concat();
    for wrong in [&right[..31], &more, &proof(&[4; 16]), &NONCE, b""] {
        assert!(!is_proved(wrong).await, "{wrong:?}");
    }
}

#[tokio::test]
async fn strangers_that_come_first_do_not_stand_for_the_server() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut strangers = Vec::new();
    for said in [&b"GET / HTTP/1.1"[..], &proof(&[4; 16]), &proof(&NONCE)] {
        let mut peer = TcpStream::connect(address).await.unwrap();
        peer.write_all(said).await.unwrap();
        peer.shutdown().await.unwrap();
        strangers.push(peer);
    }
    await_proof(listener, NONCE).await;
}

#[test]
fn a_reply_is_told_by_what_came_here() {
    let listened = "10.0.0.2:4000".parse().unwrap();
    let told = |reach: Reach, proved| {
        let reply = DialBackReply { reach: reach.into(), address: "10.0.0.9:4000".to_owned() };
        match by("one", listened, &reply, proved) {
            Dialled::By { seen, listened, outcome, .. } => {
                assert_eq!(seen.to_string(), "10.0.0.9:4000");
                assert_eq!(listened.to_string(), "10.0.0.2");
                outcome
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told(Reach::Reached, true), DialOutcome::Proved);
    assert_eq!(told(Reach::Reached, false), DialOutcome::Elsewhere);
    // Its answer was lost, not its proof.
    assert_eq!(told(Reach::TimedOut, true), DialOutcome::Proved);
    assert_eq!(told(Reach::TimedOut, false), DialOutcome::TimedOut);
    assert_eq!(told(Reach::Refused, false), DialOutcome::Refused);
    let nowhere = DialBackReply { reach: Reach::Reached.into(), address: String::new() };
    assert!(matches!(by("one", listened, &nowhere, false), Dialled::NotAsked(_)));
}

#[test]
fn why_nothing_was_dialled_is_told() {
    for (code, word) in [
        (Code::Unimplemented, "release"),
        (Code::FailedPrecondition, "since try again: it is on this host"),
        (Code::ResourceExhausted, "try again"),
    ] {
        let why = why_unasked(&Refusal::new(code, "try again"));
        assert!(why.contains(word), "{why}");
    }
}

fn options(bind: &str, advertise: Option<&str>) -> Options {
    Options {
        data_bind: Some(bind.to_owned()),
        data_advertise: advertise.map(str::to_owned),
        ..Options::new(Role::Rollout)
    }
}

#[test]
fn an_address_is_bound_as_a_handle_would_bind_it() {
    let BindOutcome::To(bound) = bind(&options("127.0.0.1:0", None), None) else {
        panic!("loopback can be bound")
    };
    assert_ne!(bound.port(), 0);
    let held = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = held.local_addr().unwrap().to_string();
    assert_eq!(bind(&options(&taken, None), None), BindOutcome::Taken);
    let refused = |address: &str, word: &str| match bind(&options(address, None), None) {
        BindOutcome::Refused(why) => assert!(why.contains(word), "{why}"),
        other => panic!("{address}: {other:?}"),
    };
    refused("0.0.0.0:0", "token");
    refused("host:0", "IP:PORT");
}

#[test]
fn peers_with_the_same_settings_would_connect_or_not() {
    let elsewhere = "http://10.0.0.1:7700";
    let bound = "10.0.0.2:4000".parse().unwrap();
    for (listed, told, word) in [
        (None, "10.0.0.2:4000", None),
        (None, "169.254.0.2:4000", Some("link-local")),
        (Some("10.1.0.0/16"), "10.0.0.2:4000", Some("none of the networks")),
        (Some("10.0.0.0/16"), "10.0.0.2:4000", None),
        (Some("nonsense"), "10.0.0.2:4000", Some("nonsense")),
        (None, "no address", Some("no address")),
    ] {
        let options = Options {
            data_networks: Some(listed.unwrap_or_default().to_owned()).filter(|l| !l.is_empty()),
            ..options("10.0.0.2:0", None)
        };
        let why = refused(&options, elsewhere, told, bound);
        assert_eq!(why.is_some(), word.is_some(), "{told}: {why:?}");
        assert!(why.unwrap_or_default().contains(word.unwrap_or_default()), "{told}");
    }
}
