//! What is dialled and what is not; what is said there.

use tokio::io::AsyncReadExt;
use tokio::net::TcpListener;
use tonic::Code;

use super::*;

fn caller(address: &str) -> CallerAddress {
    CallerAddress::new(Some(address.parse().expect("an address")))
}

#[test]
fn the_callers_own_address_is_dialled_and_no_other() {
    for (from, port, dialled) in [
        ("10.0.0.1:7", 1_024, Some("10.0.0.1:1024")),
        ("10.0.0.1:7", 65_535, Some("10.0.0.1:65535")),
        ("[2001:db8::1]:7", 4_000, Some("[2001:db8::1]:4000")),
        ("[fe80::1%3]:7", 4_000, Some("[fe80::1%3]:4000")),
        ("[::ffff:10.0.0.1]:7", 4_000, Some("10.0.0.1:4000")),
        ("10.0.0.1:7", 1_023, None),
        ("10.0.0.1:7", 0, None),
        ("10.0.0.1:7", 65_536, None),
        ("10.0.0.1:7", 65_536 + 4_000, None),
        ("127.0.0.1:7", 4_000, None),
        ("127.9.9.9:7", 4_000, None),
        ("[::1]:7", 4_000, None),
        ("[::ffff:127.0.0.1]:7", 4_000, None),
    ] {
        let found = caller(from).at(port).ok().map(|address| address.to_string());
        assert_eq!(found.as_deref(), dialled, "{from} {port}");
    }
    let code = |of: &CallerAddress| of.at(4_000).unwrap_err().code();
    assert_eq!(code(&CallerAddress::new(None)), Code::FailedPrecondition);
    assert_eq!(code(&caller("127.0.0.1:7")), Code::FailedPrecondition);
}

#[tokio::test]
async fn the_proof_and_nothing_else_is_sent() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (nonce, address) = ([7; 16], listener.local_addr().unwrap());
    let (reached, said) = tokio::join!(reach(address, &nonce), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        said
    });
    assert_eq!((reached, said.as_slice()), (Reach::Reached, &proof(&nonce)[..]));
    assert_ne!(proof(&nonce), proof(&[8; 16]));
    assert!(!said.windows(16).any(|part| part == nonce), "no byte is the caller's choice");
    drop(listener);
    assert_eq!(reach(address, &nonce).await, Reach::Refused);
}

fn request(nonce: usize) -> DialBackRequest {
    DialBackRequest { port: 4_000, nonce: vec![1; nonce] }
}

#[tokio::test]
async fn a_nonce_has_sixteen_bytes() {
    let dials = DialBack::new();
    for length in [0, 15, 17] {
        let refused = dials.dial(&caller("192.0.2.1:7"), request(length)).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument, "{length}");
    }
}

#[tokio::test]
async fn a_connection_has_one_dial_at_a_time_and_the_server_so_many() {
    let dials = DialBack::new();
    let code = async |from: &CallerAddress| dials.dial(from, request(16)).await.unwrap_err().code();
    let one = caller("192.0.2.1:7");
    let held = one.turn.acquire().await.unwrap();
    assert_eq!(code(&one.clone()).await, Code::ResourceExhausted, "it has one already");
    drop(held);
    let _all = dials.0.acquire_many(DIALS as u32).await.unwrap();
    assert_eq!(code(&one).await, Code::ResourceExhausted, "others have them all");
    assert_eq!(one.turn.available_permits(), 1, "and it has given its own back");
}
